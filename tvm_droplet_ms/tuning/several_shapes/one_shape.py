# SPDX-License-Identifier: Apache-2.0
"""One of several shapes, while it is tuned."""

from pathlib import Path

from ..compile.linked_model import LinkedModel
from .joined_model import ShapeModel
from .weight_layouts import WeightLayouts


class OneShape:
    """The place of a shape among others.

    - ``executable``: the name of its own library in the work directory.
    - ``suffix``: at the names of its kernels, so that no other shape has them.
    - ``layouts``: those of weights that other shapes have.
    - ``model``: what was compiled last; None where nothing was.
    """

    def __init__(self, number: int, layouts: WeightLayouts, folder: Path) -> None:
        self.executable = f"shape_{number}.so"
        self.suffix = f"_shape_{number}" if number else ""
        self.layouts = layouts
        self.model: ShapeModel | None = None
        self._folder = folder

    def keep(self, linked: LinkedModel) -> None:
        """Keep what was compiled, with its object files, which its workers delete."""
        self.model = ShapeModel.of(linked, self._folder)

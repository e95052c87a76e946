# SPDX-License-Identifier: Apache-2.0
"""One of several shapes during its tuning."""

from pathlib import Path

from ..compile.linked_model import LinkedModel
from .joined_model import ShapeModel
from .weight_layouts import WeightLayouts


class OneShape:
    """The state of one shape among several.

    - ``executable``: the name of its own library in the work directory.
    - ``suffix``: appended to its kernel names, so that they are unique among all shapes.
    - ``layouts``: the weight layouts of other shapes.
    - ``model``: the model that was compiled last; None before that.
    """

    def __init__(self, number: int, layouts: WeightLayouts, folder: Path) -> None:
        self.executable = f"shape_{number}.so"
        self.suffix = f"_shape_{number}" if number else ""
        self.layouts = layouts
        self.model: ShapeModel | None = None
        self._folder = folder

    def keep(self, linked: LinkedModel) -> None:
        """Keep a compiled model and copies of its object files, which the workers delete."""
        self.model = ShapeModel.of(linked, self._folder)

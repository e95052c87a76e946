# SPDX-License-Identifier: Apache-2.0
"""The result of ``tune`` with several shapes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...frontends.imported import Arrays
from ...runtime.shapes import Buckets, cut, padded
from ...session.errors import ModelError
from ..result import TuneResult, typed
from .joined_model import entry_name


@dataclass(frozen=True, repr=False)
class ShapesResult(TuneResult):
    """A model tuned for several shapes in one library, callable with NumPy arrays.

    The trials and the notes cover all shapes. The other inherited fields are those of the first
    shape.

    Parameters
    ----------
    of_shapes : tuple[TuneResult, ...]
        The result for each shape, in order. Their functions in the library are ``main``,
        ``main_1``, ``main_2`` and so on. ``export`` and ``executable`` of each result give the
        library of all shapes.
    buckets : Buckets
        The shapes.
    why_not_padded : str
        Why inputs of other extents are refused. Empty if they are padded with zeros to the next
        shape and the outputs are cut back: a test of this changed no output.
    """

    of_shapes: tuple[TuneResult, ...] = ()
    buckets: Buckets = field(default=Buckets(()))
    why_not_padded: str = ""

    @property
    def pads(self) -> bool:
        """Whether inputs of other extents are padded."""
        return not self.why_not_padded

    @property
    def each_shape(self) -> tuple[TuneResult, ...]:
        """The result for each shape."""
        return self.of_shapes

    def _run(self, given: Sequence[np.ndarray]) -> Arrays:
        shapes = tuple(tuple(np.shape(array)) for array in given)
        number = self.buckets.find(shapes, pads=self.pads)
        if number is None:
            raise ModelError(self._refusal(shapes))
        bucket, result = self.buckets.buckets[number], self.of_shapes[number]
        outputs = result.compiled(padded(typed(result.inputs, given), bucket.inputs))
        if shapes != bucket.inputs:
            outputs = cut(outputs, self.buckets.cuts() or {}, shapes)
        return outputs

    def as_json(self) -> str:
        """Return the results of all shapes as JSON."""
        shapes = [
            {
                "function": entry_name(number),
                "shapes": {spec.name: list(spec.shape) for spec in result.inputs},
                **json.loads(result.as_json()),
            }
            for number, result in enumerate(self.of_shapes)
        ]
        content = {"pads": self.pads, "notes": list(self.notes), "of_shapes": shapes}
        return json.dumps(content, indent=1)

    def _refusal(self, shapes: tuple[tuple[int, ...], ...]) -> str:
        names = [spec.name for spec in self.inputs]
        tuned = "; ".join(_shown(names, bucket.inputs) for bucket in self.buckets.buckets)
        reason = self.why_not_padded or "none of these holds them"
        return (
            f"the inputs have the shapes {_shown(names, shapes)}, and the model was tuned for "
            f"{tuned}: {reason}"
        )


def _shown(names: list[str], shapes: tuple[tuple[int, ...], ...]) -> str:
    return ", ".join(f"{name} {shape}" for name, shape in zip(names, shapes, strict=True))

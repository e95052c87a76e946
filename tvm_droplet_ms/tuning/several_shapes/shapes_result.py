# SPDX-License-Identifier: Apache-2.0
"""The result of ``tune`` with several shapes."""

import json
from dataclasses import dataclass
from html import escape

from ...runtime.shapes import Buckets
from ..compile.description import entry_name
from ..result import TuneResult


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
    """

    of_shapes: tuple[TuneResult, ...] = ()

    @property
    def buckets(self) -> Buckets:
        """The shapes."""
        return self.info.buckets

    @property
    def why_not_padded(self) -> str:
        """Why inputs of other extents are refused; "" if they are padded."""
        return self.info.why_not_padded

    @property
    def pads(self) -> bool:
        """Whether inputs of other extents are padded with zeros to the next shape.

        The outputs are cut back: a test of this changed no output.
        """
        return not self.info.why_not_padded

    @property
    def each_shape(self) -> tuple[TuneResult, ...]:
        """The result for each shape."""
        return self.of_shapes

    def _repr_html_(self) -> str:
        """Return the summaries of all shapes as tables for a notebook."""
        tables = (
            f"<p>{escape(f'{entry_name(number)}: {result.shown_inputs}')}</p>{result._repr_html_()}"
            for number, result in enumerate(self.of_shapes)
        )
        return "".join([*tables, *(f"<p>note: {escape(note)}</p>" for note in self.notes[-1:])])

    def as_json(self) -> str:
        """Return the results of all shapes as JSON."""
        shapes = [
            {
                "function": entry_name(number),
                **json.loads(result.as_json()),
            }
            for number, result in enumerate(self.of_shapes)
        ]
        content = {"pads": self.pads, "notes": list(self.notes), "of_shapes": shapes}
        return json.dumps(content, indent=1)

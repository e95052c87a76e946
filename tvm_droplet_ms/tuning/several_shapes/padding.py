# SPDX-License-Identifier: Apache-2.0
"""Inputs of any extents, padded to those of a bucket, and outputs cut back. Imports no TVM."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of all inputs, or of all outputs."""


Cuts = dict[tuple[int, int], tuple[int, int]]
"""For an output and an axis of it, the input and the axis of it that have the same extent."""


@dataclass(frozen=True)
class Bucket:
    """The shapes of the inputs that a model was tuned for, and those of its outputs."""

    inputs: Shapes
    outputs: Shapes

    def holds(self, shapes: Shapes) -> bool:
        """True if inputs of these shapes can be padded to those of this bucket."""
        return [len(shape) for shape in shapes] == [len(shape) for shape in self.inputs] and all(
            extent <= most
            for shape, own in zip(shapes, self.inputs, strict=True)
            for extent, most in zip(shape, own, strict=True)
        )


@dataclass(frozen=True)
class Buckets:
    """The buckets of a model. An axis is open where their extents differ."""

    buckets: tuple[Bucket, ...]

    def find(self, shapes: Shapes, *, pads: bool) -> int | None:
        """The number of the bucket for inputs of some shapes; None where there is none.

        It has just these shapes, or with ``pads`` it is the smallest that holds them. Only open
        axes are padded.
        """
        for number, bucket in enumerate(self.buckets):
            if bucket.inputs == shapes:
                return number
        if not pads or not self._differs_at_open_axes(shapes):
            return None
        holding = [number for number, each in enumerate(self.buckets) if each.holds(shapes)]
        return min(holding, key=lambda number: _elements(self.buckets[number]), default=None)

    def _differs_at_open_axes(self, shapes: Shapes) -> bool:
        first = self.buckets[0].inputs
        if [len(shape) for shape in shapes] != [len(shape) for shape in first]:
            return False
        open_axes = _open_axes([bucket.inputs for bucket in self.buckets])
        return all(
            (place, axis) in open_axes or extent == first[place][axis]
            for place, shape in enumerate(shapes)
            for axis, extent in enumerate(shape)
        )

    def cuts(self) -> Cuts | None:
        """For each open axis of an output, the input and its axis that have the same extents.

        None where an output's extents follow from no input's: such outputs cannot be cut.
        """
        found = {}
        columns = _columns([bucket.inputs for bucket in self.buckets])
        for place, extents in _columns([bucket.outputs for bucket in self.buckets]).items():
            if len(set(extents)) == 1:
                continue
            same = [source for source, others in columns.items() if others == extents]
            if not same:
                return None
            found[place] = same[0]
        return found


def _elements(bucket: Bucket) -> int:
    return sum(prod(shape) for shape in bucket.inputs)


def _columns(shapes: Sequence[Shapes]) -> dict[tuple[int, int], list[int]]:
    """The extents of each axis of each tensor, in all buckets."""
    return {
        (place, axis): [each[place][axis] for each in shapes]
        for place, shape in enumerate(shapes[0])
        for axis in range(len(shape))
    }


def _open_axes(shapes: Sequence[Shapes]) -> set[tuple[int, int]]:
    return {place for place, extents in _columns(shapes).items() if len(set(extents)) > 1}


def padded(arrays: Sequence[np.ndarray], shapes: Shapes) -> list[np.ndarray]:
    """Arrays with zeros behind their ends, up to some shapes."""
    return [
        np.pad(array, [(0, most - extent) for extent, most in zip(array.shape, shape, strict=True)])
        for array, shape in zip(arrays, shapes, strict=True)
    ]


def cut(
    outputs: Sequence[np.ndarray],
    cuts: Cuts,
    shapes: Shapes,
) -> list[np.ndarray]:
    """The parts of outputs that belong to inputs of some shapes, before they were padded."""
    found = []
    for place, output in enumerate(outputs):
        extents = list(output.shape)
        for axis in range(output.ndim):
            if (place, axis) in cuts:
                source, source_axis = cuts[place, axis]
                extents[axis] = shapes[source][source_axis]
        found.append(output[tuple(slice(extent) for extent in extents)])
    return found

# SPDX-License-Identifier: Apache-2.0
"""Inputs of any extents, padded to those of a bucket, and outputs cut back. Imports no TVM."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of all inputs, or of all outputs."""

Axis = tuple[int, int]
"""A tensor and an axis of it."""

Cuts = dict[Axis, Axis]
"""For an axis of an output, the axis of an input that has the same extent."""


@dataclass(frozen=True)
class Bucket:
    """The shapes of the inputs that a model was tuned for, and those of its outputs."""

    inputs: Shapes
    outputs: Shapes


@dataclass(frozen=True)
class Buckets:
    """The buckets of a model. An axis is open where their extents differ."""

    buckets: tuple[Bucket, ...]

    def find(self, shapes: Shapes, *, pads: bool) -> int | None:
        """The number of the bucket for inputs of some shapes; None where there is none.

        It has just these shapes, or with ``pads`` it is the smallest that holds them. Only open
        axes are padded. Axes that are equal in all buckets are one extent, and must be equal.
        """
        for number, bucket in enumerate(self.buckets):
            if bucket.inputs == shapes:
                return number
        if not pads or not self._may_be_padded(shapes):
            return None
        extents = _columns([shapes])
        holding = [
            number
            for number, columns in enumerate(_columns([b.inputs]) for b in self.buckets)
            if all(extents[axis][0] <= columns[axis][0] for axis in extents)
        ]
        return min(holding, key=lambda number: _elements(self.buckets[number]), default=None)

    def _may_be_padded(self, shapes: Shapes) -> bool:
        columns = _columns([bucket.inputs for bucket in self.buckets])
        given = _columns([shapes])
        if given.keys() != columns.keys():
            return False
        together: dict[tuple[int, ...], set[int]] = {}
        for axis, extents in columns.items():
            (extent,) = given[axis]
            if len(set(extents)) == 1 and extent != extents[0]:
                return False
            if len(set(extents)) > 1:
                together.setdefault(tuple(extents), set()).add(extent)
        return all(len(extents) == 1 for extents in together.values())

    @property
    def open_axes(self) -> list[Axis]:
        """The axes of inputs whose extents differ; none where the ranks differ."""
        if not _are_alike([bucket.inputs for bucket in self.buckets]):
            return []
        columns = _columns([bucket.inputs for bucket in self.buckets])
        return [axis for axis, extents in columns.items() if len(set(extents)) > 1]

    def cuts(self) -> Cuts | None:
        """For each open axis of an output, an axis of an input that has the same extents.

        None where an output's extents follow from no input's: such outputs cannot be cut.
        """
        sides = [[b.inputs for b in self.buckets], [b.outputs for b in self.buckets]]
        if not all(map(_are_alike, sides)):
            return None
        found: Cuts = {}
        columns = _columns(sides[0])
        for place, extents in _columns(sides[1]).items():
            if len(set(extents)) == 1:
                continue
            same = [source for source, others in columns.items() if others == extents]
            if not same:
                return None
            found[place] = same[0]
        return found


def _are_alike(shapes: Sequence[Shapes]) -> bool:
    """True if all have as many tensors of the same ranks."""
    return len({tuple(len(shape) for shape in each) for each in shapes}) == 1


def _elements(bucket: Bucket) -> int:
    return sum(prod(shape) for shape in bucket.inputs)


def _columns(shapes: Sequence[Shapes]) -> dict[Axis, list[int]]:
    """The extents of each axis of each tensor, in all buckets."""
    return {
        (place, axis): [each[place][axis] for each in shapes]
        for place, shape in enumerate(shapes[0])
        for axis in range(len(shape))
    }


def padded(
    arrays: Sequence[np.ndarray], shapes: Shapes, noise: np.random.Generator | None = None
) -> list[np.ndarray]:
    """Arrays with zeros behind their ends, up to some shapes.

    With a generator there is noise in place of the zeros of floating-point arrays.
    """
    found = []
    for array, shape in zip(arrays, shapes, strict=True):
        whole = array
        if array.shape != shape:
            whole = np.zeros(shape, array.dtype)
            if noise is not None and array.dtype.kind == "f":
                whole = noise.standard_normal(shape).astype(array.dtype)
            whole[tuple(slice(extent) for extent in array.shape)] = array
        found.append(whole)
    return found


def cut(outputs: Sequence[np.ndarray], cuts: Cuts, shapes: Shapes) -> list[np.ndarray]:
    """The parts of outputs that belong to inputs of some shapes, before they were padded."""
    found = []
    for place, output in enumerate(outputs):
        extents = list(output.shape)
        for axis in range(output.ndim):
            if (place, axis) in cuts:
                source, source_axis = cuts[place, axis]
                extents[axis] = shapes[source][source_axis]
        part = output[tuple(slice(extent) for extent in extents)] if output.ndim else output
        found.append(np.array(part, order="C"))
    return found

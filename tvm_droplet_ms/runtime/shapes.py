# SPDX-License-Identifier: Apache-2.0
"""Pad inputs to the extents of a bucket, and cut the outputs back. Does not import TVM."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

import numpy as np

Shapes = tuple[tuple[int, ...], ...]
"""The shapes of all inputs, or of all outputs."""

OpenShape = tuple[int | None, ...]
"""The shape of an output; None for an extent that depends on values."""

Extent = TypeVar("Extent", int, int | None)

Axis = tuple[int, int]
"""The index of a tensor, and the index of one of its axes."""

Cuts = dict[Axis, Axis]
"""Maps an axis of an output to an axis of an input with the same extent."""


@dataclass(frozen=True)
class Bucket:
    """The input shapes that a model was tuned for, and its output shapes.

    An extent of an output is None if the values of inputs decide it.
    """

    inputs: Shapes
    outputs: tuple[OpenShape, ...]


@dataclass(frozen=True)
class Buckets:
    """The buckets of a model. An axis is open if its extent differs between buckets."""

    buckets: tuple[Bucket, ...]

    def find(self, shapes: Shapes, *, pads: bool) -> int | None:
        """Return the index of the bucket for inputs of some shapes; None if there is none.

        The bucket has exactly these shapes, or with ``pads`` it is the smallest that holds them.
        Only open axes are padded. Two axes whose extents are equal in every bucket are one extent,
        and must be equal in the inputs.
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
        return min(
            holding, key=lambda number: sum(map(prod, self.buckets[number].inputs)), default=None
        )

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
        """The axes of inputs whose extents differ; empty if the ranks differ."""
        if not _are_alike([bucket.inputs for bucket in self.buckets]):
            return []
        columns = _columns([bucket.inputs for bucket in self.buckets])
        return [axis for axis, extents in columns.items() if len(set(extents)) > 1]

    def cuts(self) -> Cuts | None:
        """Return an input axis with the same extents for each open axis of an output.

        Returns None if there is no such input axis: the output cannot be cut then.
        """
        inputs = [bucket.inputs for bucket in self.buckets]
        outputs = [bucket.outputs for bucket in self.buckets]
        if not (_are_alike(inputs) and _are_alike(outputs)):
            return None
        found: Cuts = {}
        columns = _columns(inputs)
        for place, extents in _columns(outputs).items():
            if len(set(extents)) == 1:
                continue
            same = [source for source, others in columns.items() if others == extents]
            if not same:
                return None
            found[place] = same[0]
        return found


def _are_alike(shapes: Sequence[Sequence[OpenShape]]) -> bool:
    """Return whether all have the same number of tensors, of the same ranks."""
    return len({tuple(len(shape) for shape in each) for each in shapes}) == 1


def is_of(shape: Sequence[int], given: OpenShape) -> bool:
    """Return whether a shape is the given one, or one with other extents where that is open."""
    return len(shape) == len(given) and all(
        extent in (None, found) for found, extent in zip(shape, given, strict=True)
    )


def _columns(shapes: Sequence[Sequence[tuple[Extent, ...]]]) -> dict[Axis, list[Extent]]:
    """Return the extents of each axis of each tensor in all buckets."""
    return {
        (place, axis): [each[place][axis] for each in shapes]
        for place, shape in enumerate(shapes[0])
        for axis in range(len(shape))
    }


def padded(
    arrays: Sequence[np.ndarray], shapes: Shapes, noise: np.random.Generator | None = None
) -> list[np.ndarray]:
    """Pad the ends of arrays with zeros to the given shapes.

    ``noise``: a generator of normal noise for padding floating-point arrays instead of zeros.
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
    """Cut outputs of padded inputs to the parts for the original input ``shapes``."""
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

# SPDX-License-Identifier: Apache-2.0
"""The options of ``tune`` for several shapes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from ...frontends import import_model
from ...frontends.extents import Dims, Shapes, check_dims, check_shapes
from ...frontends.imported import ImportedModel
from ...session.errors import ModelError

Inputs: TypeAlias = Mapping[str, np.ndarray]
"""Values of inputs by name."""


_Axis = tuple[str, int | None]
"""The name of an extent and None, or an input and one of its axes."""

_Place = tuple[_Axis, ...]
"""All axes that share one extent."""


@dataclass(frozen=True)
class BucketOptions:
    """The options of one bucket.

    - ``shapes``, ``dims``, ``inputs``: as in ``tune`` for one shape.
    - ``share``: its share of the time and trials; all shares sum to 1.
    """

    shapes: Shapes | None
    dims: Dims | None
    inputs: Inputs | None
    share: float

    @property
    def _extents(self) -> dict[_Axis, int]:
        """The extents by name, and by input and axis."""
        extents: dict[_Axis, int] = {(name, None): each for name, each in (self.dims or {}).items()}
        for name, shape in (self.shapes or {}).items():
            extents |= {(name, axis): extent for axis, extent in enumerate(shape)}
        return extents

    @property
    def size(self) -> int:
        """A number that grows with the extents, for sorting buckets."""
        return prod(self._extents.values())

    def between(self, others: Sequence["BucketOptions"]) -> Iterator["BucketOptions"]:
        """Yield options with extents between the next smaller bucket and this one.

        All extents in which buckets differ change together: to the smaller bucket's plus one, to
        the middle, and to this bucket's minus one. If several extents differ, each one also changes
        alone: to this bucket's minus one, or to the smaller bucket's if there is none between.
        """
        tried = {}
        for place, extents in self._open(others).items():
            own = self._extents[place[0]]
            low = max((e for e in extents if e is not None and e < own), default=0)
            between = {e for e in (low + 1, (low + own) // 2, own - 1) if low < e < own}
            tried[place] = sorted(between), max(between, default=low)
        if len(tried) > 1:
            for place, (_, alone) in tried.items():
                if alone:
                    yield self._with({place: alone})
        for number in range(max((len(values) for values, _ in tried.values()), default=0)):
            yield self._with(
                {
                    place: values[min(number, len(values) - 1)]
                    for place, (values, _) in tried.items()
                    if values
                }
            )

    def _open(self, others: Sequence["BucketOptions"]) -> dict[_Place, tuple[int | None, ...]]:
        """Return the extents in which buckets differ: the axes of each, and its values by bucket.

        Axes with equal extents in all buckets are taken as one extent.
        """
        groups: dict[tuple[object, ...], list[_Axis]] = {}
        for axis in self._extents:
            extents = tuple(other._extents.get(axis) for other in others)
            if len(set(extents)) > 1:
                groups.setdefault((axis[0] if axis[1] is None else None, *extents), []).append(axis)
        return {
            tuple(places): tuple(other._extents.get(places[0]) for other in others)
            for places in groups.values()
        }

    def _with(self, changes: Mapping[_Place, int]) -> "BucketOptions":
        """Return a copy with other extents at some places."""
        of = {axis: extent for place, extent in changes.items() for axis in place}
        dims = {name: of.get((name, None), extent) for name, extent in (self.dims or {}).items()}
        shapes = {
            name: tuple(of.get((name, axis), extent) for axis, extent in enumerate(shape))
            for name, shape in (self.shapes or {}).items()
        }
        return replace(self, inputs=None, dims=dims or None, shapes=shapes or None)


@dataclass(frozen=True)
class ModelSource:
    """A model as ``tune`` was given it, to be imported for each of its shapes."""

    model: Any
    constants: Mapping[str, Any] | None
    in_place: Mapping[str, str] | None
    threads: int

    def read(self, bucket: BucketOptions) -> ImportedModel:
        """Import the model with the shapes of a bucket."""
        return import_model(
            self.model,
            bucket.shapes,
            self.threads,
            dims=bucket.dims,
            constants=self.constants,
            in_place=self.in_place,
        )


def several(shapes: Any, dims: Any) -> bool:
    """Return whether the options give several buckets."""
    return _is_list(shapes) or _is_list(dims)


def bucket_options(
    shapes: Any, dims: Any, shares: Any = None, inputs: Any = None
) -> list[BucketOptions]:
    """Return the options of each bucket; of one bucket if no option is a list.

    ``shapes``, ``dims``, ``inputs``: a mapping for all buckets, or a list with one per bucket.
    ``shares``: the shares of the buckets, with any sum; None for equal shares. Raises
    ``ModelError`` if the lengths of lists differ, two buckets are equal, an entry is not a mapping,
    an extent is invalid, or a share is not positive.
    """
    weights = _weights(shares)
    given = {"shapes": shapes, "dims": dims, "inputs": inputs, "shares": weights}
    counts = {name: len(value) for name, value in given.items() if _is_list(value)}
    if counts and not several(shapes, dims):
        raise ModelError(
            f"{next(iter(counts))} is a list, and there is one shape: expected a list of shapes or "
            "dims too, with an entry for each shape"
        )
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise ModelError(f"the lists have {told}: expected an entry for each shape in all of them")
    count = max(counts.values(), default=1)
    if count == 0:
        raise ModelError(f"{next(iter(counts))} is empty: expected an entry for each shape")
    weights = weights or [1.0] * count
    found = [
        BucketOptions(
            check_shapes(_entry("shapes", shapes, number) or {}) or None,
            check_dims(_entry("dims", dims, number) or {}) or None,
            _entry("inputs", inputs, number),
            weights[number] / sum(weights),
        )
        for number in range(count)
    ]
    for number, one in enumerate(found):
        if any((one.shapes, one.dims) == (other.shapes, other.dims) for other in found[:number]):
            extents = {**(one.shapes or {}), **(one.dims or {})}
            raise ModelError(f"two of the shapes have the extents {extents}: give each once")
    return found


def _weights(shares: Any) -> list[float] | None:
    if shares is None:
        return None
    weights = list(shares) if hasattr(shares, "__iter__") else [shares]
    for weight in weights:
        if not isinstance(weight, Real) or not 0.0 < float(weight) < inf:
            raise ModelError(f"shares has {weight!r}: expected a positive number for each shape")
    return [float(weight) for weight in weights]


def _entry(name: str, value: Any, number: int) -> Mapping[str, Any] | None:
    entry = value[number] if _is_list(value) else value
    if entry is not None and not isinstance(entry, Mapping):
        raise ModelError(f"{name} has the entry {entry!r}: expected a mapping of names")
    return entry


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)

# SPDX-License-Identifier: Apache-2.0
"""The options of ``tune`` that give several shapes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from ...session.errors import ModelError
from ..frontends.extents import Dims, Shapes, check_dims, check_shapes

Inputs: TypeAlias = Mapping[str, np.ndarray]
"""Values of inputs by name."""


@dataclass(frozen=True)
class BucketOptions:
    """The options of one bucket.

    - ``shapes``, ``dims``, ``inputs``: as of ``tune`` for one shape.
    - ``share``: its share of the time and trials; the sum of all is 1.
    """

    shapes: Shapes | None
    dims: Dims | None
    inputs: Inputs | None
    share: float

    @property
    def size(self) -> int:
        """A number that grows with the extents, to order buckets by."""
        extents = [*(self.dims or {}).values()]
        for shape in (self.shapes or {}).values():
            extents += shape
        return prod(extents)

    def between(self, others: Sequence["BucketOptions"]) -> Iterator["BucketOptions"]:
        """The same with extents between those of the next smaller bucket and its own.

        Of the extents in which buckets differ each alone is smaller by one. All together are
        smaller by one, in the middle, and larger by one than those of the smaller bucket.
        """
        dims = {
            name: _values(extent, [(other.dims or {}).get(name) for other in others])
            for name, extent in (self.dims or {}).items()
        }
        # Axes of one extent in all buckets are taken to be one extent.
        groups: dict[tuple[int | None, ...], list[tuple[str, int]]] = {}
        for name, shape in (self.shapes or {}).items():
            for axis in range(len(shape)):
                key = tuple(_extent(other, name, axis) for other in others)
                groups.setdefault(key, []).append((name, axis))
        places: list[tuple[str | list[tuple[str, int]], list[int]]] = [
            *((name, values) for name, values in dims.items() if values),
            *(
                (group, values)
                for key, group in groups.items()
                if (values := _values(_extent(self, *group[0]) or 1, key))
            ),
        ]
        if len(places) > 1:
            for place, values in places:
                yield self._with({_hashable(place): values[-1]})
        for number in range(max((len(values) for _, values in places), default=0)):
            yield self._with(
                {_hashable(place): values[min(number, len(values) - 1)] for place, values in places}
            )

    def _with(self, changes: Mapping[Any, int]) -> "BucketOptions":
        """Other extents of some names, and of some groups of axes."""
        of_axes = {
            axis: n for key, n in changes.items() if not isinstance(key, str) for axis in key
        }
        return replace(
            self,
            inputs=None,
            dims={n: changes.get(n, e) for n, e in (self.dims or {}).items()} or None,
            shapes={
                n: tuple(of_axes.get((n, axis), e) for axis, e in enumerate(shape))
                for n, shape in (self.shapes or {}).items()
            }
            or None,
        )


def _hashable(place: str | list[tuple[str, int]]) -> Any:
    return place if isinstance(place, str) else tuple(place)


def _values(extent: int, all_extents: Sequence[int | None]) -> list[int]:
    """The extents to try between the next smaller one and an own one, ascending."""
    if all(other == extent for other in all_extents):
        return []
    low = max((other for other in all_extents if other is not None and other < extent), default=0)
    found = {low + 1, (low + extent) // 2, extent - 1}
    return sorted(value for value in found if low < value < extent)


def _extent(options: BucketOptions, name: str, axis: int) -> int | None:
    shape = (options.shapes or {}).get(name, ())
    return shape[axis] if axis < len(shape) else None


def several(shapes: Any, dims: Any) -> bool:
    """True if options give several buckets."""
    return _is_list(shapes) or _is_list(dims)


def bucket_options(
    shapes: Any, dims: Any, shares: Any = None, inputs: Any = None
) -> list[BucketOptions]:
    """The options of each bucket; of one where no option is a list.

    ``shapes``, ``dims``, ``inputs``: a mapping that holds for all buckets, or a list of one for
    each. ``shares``: the shares of the buckets, whose sum may be any; None for equal ones. Raises
    ``ModelError`` if their numbers differ, two are equal, an entry is no mapping, an extent is not
    positive, or a share is not.
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

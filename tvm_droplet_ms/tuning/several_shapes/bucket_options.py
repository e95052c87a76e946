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

    def smaller(self, others: Sequence["BucketOptions"]) -> Iterator["BucketOptions"]:
        """The same with extents that are smaller by one, of those in which buckets differ.

        Each of these alone, where a name or an axis has it, and all together.
        """
        dims = {
            name
            for name, extent in (self.dims or {}).items()
            if extent > 1 and any((other.dims or {}).get(name) != extent for other in others)
        }
        axes = {
            (name, axis)
            for name, shape in (self.shapes or {}).items()
            for axis, extent in enumerate(shape)
            if extent > 1 and any(_extent(other, name, axis) != extent for other in others)
        }
        # Axes of one extent in all buckets are taken to be one extent.
        groups: dict[tuple[int | None, ...], set[tuple[str, int]]] = {}
        for name, axis in axes:
            key = tuple(_extent(other, name, axis) for other in others)
            groups.setdefault(key, set()).add((name, axis))
        changes: list[tuple[set[str], set[tuple[str, int]]]] = [({name}, set()) for name in dims]
        changes += [(set(), group) for group in groups.values()]
        if len(changes) > 1:
            changes.append((dims, axes))
        for names, places in changes:
            yield replace(
                self,
                inputs=None,
                dims={n: e - (n in names) for n, e in (self.dims or {}).items()} or None,
                shapes={
                    n: tuple(e - ((n, axis) in places) for axis, e in enumerate(shape))
                    for n, shape in (self.shapes or {}).items()
                }
                or None,
            )


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
            "dims too, with an entry for each bucket"
        )
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} of {name}" for name, count in counts.items())
        raise ModelError(f"the lists have {told}: expected an entry for each bucket in all of them")
    count = max(counts.values(), default=1)
    if count == 0:
        raise ModelError(f"{next(iter(counts))} is empty: expected an entry for each bucket")
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
            raise ModelError(f"two buckets have the extents {extents}: give each once")
    return found


def _weights(shares: Any) -> list[float] | None:
    if shares is None:
        return None
    weights = list(shares) if hasattr(shares, "__iter__") else [shares]
    for weight in weights:
        if not isinstance(weight, Real) or not 0.0 < float(weight) < inf:
            raise ModelError(f"shares has {weight!r}: expected a positive number for each bucket")
    return [float(weight) for weight in weights]


def _entry(name: str, value: Any, number: int) -> Mapping[str, Any] | None:
    entry = value[number] if _is_list(value) else value
    if entry is not None and not isinstance(entry, Mapping):
        raise ModelError(f"{name} has the entry {entry!r}: expected a mapping of names")
    return entry


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)

# SPDX-License-Identifier: Apache-2.0
"""The options of ``tune`` that give several shapes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from ...session.errors import ModelError
from ..frontends.extents import Dims, Shapes

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
    def size(self) -> float:
        """A number that grows with the extents, to order buckets by."""
        extents = [*(self.dims or {}).values(), *chain(*(self.shapes or {}).values())]
        return math.prod(max(1, int(extent)) for extent in extents)


def several(shapes: Any, dims: Any) -> bool:
    """True if options give several buckets."""
    return _is_list(shapes) or _is_list(dims)


def bucket_options(
    shapes: Any, dims: Any, shares: Sequence[float] | None = None, inputs: Any = None
) -> list[BucketOptions]:
    """The options of each bucket; of one where no option is a list.

    ``shapes``, ``dims``, ``inputs``: a mapping that holds for all buckets, or a list of one for
    each. ``shares``: the shares of the buckets, whose sum may be any; None for equal ones. Raises
    ``ModelError`` if their numbers differ, an entry is no mapping, or a share is not positive.
    """
    given = {"shapes": shapes, "dims": dims, "inputs": inputs, "shares": shares}
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
        raise ModelError(
            f"{next(iter(counts))} is an empty list: expected an entry for each bucket"
        )
    weights = [1.0] * count if shares is None else list(shares)
    for weight in weights:
        if not isinstance(weight, int | float) or not 0 < weight < float("inf"):
            raise ModelError(f"shares has {weight!r}: expected a positive number for each bucket")
    return [
        BucketOptions(
            _entry("shapes", shapes, number),
            _entry("dims", dims, number),
            _entry("inputs", inputs, number),
            weights[number] / sum(weights),
        )
        for number in range(count)
    ]


def _entry(name: str, value: Any, number: int) -> Mapping[str, Any] | None:
    entry = value[number] if _is_list(value) else value
    if entry is not None and not isinstance(entry, Mapping):
        raise ModelError(f"{name} has the entry {entry!r}: expected a mapping of names")
    return entry


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)

# SPDX-License-Identifier: Apache-2.0
"""Tensors that are views of others: transposed, reshaped, or a part. Imports no TVM."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class View:
    """How a tensor lies in the elements of another one, whose last axis is contiguous.

    - ``offset``: the place of its first element.
    - ``shape``, ``strides``: its extents, and the distance of neighbors on each axis, in elements.
    """

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def place(self, *at: Any) -> Any:
        """The place of an element, from its indices: integers, or expressions of them."""
        terms = [i * stride for i, stride in zip(at, self.strides, strict=True) if stride]
        return sum(terms, self.offset)


class Viewed:
    """A tensor without data, to which operations of NumPy are applied."""

    def __init__(self, shape: Sequence[int]) -> None:
        self._start = self._array = np.empty(tuple(shape), np.int8)

    def apply(self, operation: Callable[[np.ndarray], np.ndarray]) -> bool:
        """Apply an operation. False, and nothing is done, where it would copy elements."""
        result = operation(self._array)
        if not np.may_share_memory(result, self._start):
            return False
        self._array = result
        return True

    def view(self) -> View:
        """How the result lies in the tensor."""
        start, array = (each.__array_interface__["data"][0] for each in (self._start, self._array))
        return View(array - start, self._array.shape, self._array.strides)

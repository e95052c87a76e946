# SPDX-License-Identifier: Apache-2.0
"""Views of tensors: transposed, reshaped, or sliced. Imports no TVM."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class View:
    """The layout of a view in another tensor, which is contiguous.

    - ``offset``: the place of the view's first element in the tensor.
    - ``shape``, ``strides``: the view's extents, and its strides in elements.
    """

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def place(self, *at: Any) -> Any:
        """Return the place of an element; its indices are integers or integer expressions."""
        terms = [i * stride for i, stride in zip(at, self.strides, strict=True) if stride]
        return sum(terms, self.offset)


class Viewed:
    """A tensor without data to which NumPy operations are applied."""

    def __init__(self, shape: Sequence[int]) -> None:
        self._start = self._array = np.empty(tuple(shape), np.int8)

    def apply(self, operation: Callable[[np.ndarray], np.ndarray]) -> bool:
        """Apply an operation; return False, and do nothing, if it would copy elements."""
        result = operation(self._array)
        if not np.may_share_memory(result, self._start):
            return False
        self._array = result
        return True

    def view(self) -> View:
        """Return the layout of the result in the original tensor."""
        start, array = (each.__array_interface__["data"][0] for each in (self._start, self._array))
        return View(array - start, self._array.shape, self._array.strides)

# SPDX-License-Identifier: Apache-2.0
"""Memory layouts of the factors of an attention's products."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from ....design_space.dot_products.dot_intrinsics import HALF
from ....design_space.dot_products.rounded_vectors import rounded
from ..kernel_pass import compute_stage

LANES = 16
"""Number of scores in a vector."""

PAIR = 2
"""Number of bfloat16 products that a lane sums at a time."""

Element = Callable[..., Any]
"""A function from indices to a tensor's element."""

_FOR_FLOATS = (0.99999993, 0.69315307, 0.24015362, 0.05582632, 0.00898934, 0.00187758)
_FOR_HALVES = (0.99992522, 0.69583354, 0.22606716, 0.07802452)
"""Coefficients of polynomials for ``2 ** x`` with x from 0 to 1, within 7.5e-8 and 7.5e-5. The
precision of bfloat16 is 2e-3."""


@dataclass(frozen=True)
class Extents:
    """The extents of an attention.

    - ``batch``: the extents of batches and heads, at least one axis.
    - ``rows``, ``columns``: the shape of the scores: the numbers of queries and keys of a head.
    - ``depth``, ``width``: the lengths of a key and of a value.
    """

    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    width: int

    @property
    def panels(self) -> int:
        """Number of vectors in a row of scores."""
        return -(-self.columns // LANES)


class Packing:
    """Packs keys into panels of one vector, and keeps the layout of values and weights.

    ``summed``: the number of columns that the product with the values sums over.
    """

    def __init__(self, extents: Extents) -> None:
        self._extents = extents
        self.summed = extents.columns

    def stored(self, value: Any) -> Any:
        """Convert a number to its stored form."""
        return value

    def loaded(self, value: Any) -> Any:
        """Convert a stored number to float32."""
        return value

    def exponentials(self, data: te.Tensor) -> te.Tensor:
        """Compute the exponentials of a tensor of numbers up to 0."""
        return _exponentials(data, _FOR_FLOATS)

    def scores(self, rows: int, queries: Element, keys: Element) -> te.Tensor:
        """Compute the products of queries and keys, of shape (*batch, rows, panels, lanes).

        ``rows``: the number of rows, padding included. ``queries``: the stored queries. ``keys``:
        the keys with indices (*batch, depth, columns).
        """
        one, key = self._extents, self.keys(keys)
        d = te.reduce_axis((0, one.depth), "d")

        def product(*at: Any) -> Any:
            query = self.loaded(queries(*at[:-2], d))
            return te.sum(query * self.loaded(key(*at[:-3], d, *at[-2:])), axis=[d])

        return compute_stage((*one.batch, rows, one.panels, LANES), product, "scores")

    def keys(self, keys: Element) -> Element:
        """Pack the keys; return them with indices (*batch, depth, panels, lanes)."""
        one = self._extents
        packed = compute_stage(
            (*one.batch, one.panels, one.depth, LANES),
            lambda *at: keys(*at[:-3], at[-2], column_of(at[-3], at[-1], one.columns)),
            "keys",
        )
        return lambda *at: packed(*at[:-3], at[-2], at[-3], at[-1])

    def values(self, values: Element) -> Element:
        """Pack the values; return them with indices (*batch, columns, width)."""
        one = self._extents
        packed: Element = compute_stage((*one.batch, one.columns, one.width), values, "values")
        return packed

    def weights(self, rows: int, exponentials: Element) -> tuple[Element, Element]:
        """Return the float32 weights, by panel and lane, and by column.

        The indices are (*batch, rows, panels, lanes) and (*batch, rows, columns). ``rows``: the
        number of rows, padding included. ``exponentials``: the exponentials by panel and lane.
        """
        one = self._extents
        packed = compute_stage(
            (*one.batch, rows, one.panels, LANES),
            lambda *at: _or_zero(exponentials(*at), at[-2] * LANES + at[-1], one.columns),
            "weights",
        )
        return packed, lambda *at: packed(*at[:-1], at[-1] // LANES, at[-1] % LANES)


class InPairs(Packing):
    """Packs bfloat16 factors: the two products that a lane sums at a time are contiguous."""

    def __init__(self, extents: Extents) -> None:
        super().__init__(extents)
        self.summed = extents.panels * LANES

    def stored(self, value: Any) -> Any:
        """Convert a number to its stored form."""
        return rounded(value) if str(value.ty) == "float32" else value.astype(HALF)

    def loaded(self, value: Any) -> Any:
        """Convert a stored number to float32."""
        return value.astype("float32")

    def exponentials(self, data: te.Tensor) -> te.Tensor:
        """Compute the exponentials of a tensor of numbers up to 0, to bfloat16 precision."""
        return _exponentials(data, _FOR_HALVES)

    def keys(self, keys: Element) -> Element:
        """Pack the keys; return them with indices (*batch, depth, panels, lanes)."""
        one = self._extents

        def key(*at: Any) -> Any:
            depth, column = at[-3] * PAIR + at[-1], column_of(at[-4], at[-2], one.columns)
            return self.stored(keys(*at[:-4], depth, column))

        shape = (*one.batch, one.panels, one.depth // PAIR, LANES, PAIR)
        packed = compute_stage(shape, key, "keys")
        return lambda *at: packed(*at[:-3], at[-2], at[-3] // PAIR, at[-1], at[-3] % PAIR)

    def values(self, values: Element) -> Element:
        """Pack the values; return them with indices (*batch, columns, width)."""
        one = self._extents

        def value(*at: Any) -> Any:
            column = at_most(at[-3] * PAIR + at[-1], one.columns, self.summed)
            return self.stored(values(*at[:-3], column, at[-2]))

        packed = compute_stage((*one.batch, self.summed // PAIR, one.width, PAIR), value, "values")
        return lambda *at: packed(*at[:-2], at[-2] // PAIR, at[-1], at[-2] % PAIR)

    def weights(self, rows: int, exponentials: Element) -> tuple[Element, Element]:
        """Return the float32 weights, by panel and lane, and by column."""
        one = self._extents

        def weight(*at: Any) -> Any:
            found = exponentials(*at[:-1], at[-1] // LANES, at[-1] % LANES)
            return self.stored(_or_zero(found, at[-1], one.columns))

        packed = compute_stage((*one.batch, rows, self.summed), weight, "weights")

        def of_column(*at: Any) -> Any:
            return self.loaded(packed(*at))

        return lambda *at: of_column(*at[:-2], at[-2] * LANES + at[-1]), of_column


def _exponentials(data: te.Tensor, factors: Sequence[float]) -> te.Tensor:
    """Compute ``e ** data`` for float32 data up to 0 in 14 or 12 instructions; ``fast_exp`` has 24.

    A polynomial gives two to the power of the fraction. The integer part is added to its exponent.
    """

    def exponential(*at: Any) -> Any:
        power = data[at] * tirx.const(math.log2(math.e), "float32")
        whole = tirx.floor(power)
        part, found = power - whole, tirx.const(factors[-1], "float32")
        for factor in reversed(factors[:-1]):
            found = found * part + tirx.const(factor, "float32")
        exponent = tirx.shift_left(whole.astype("int32"), tirx.const(23, "int32"))
        found = tirx.reinterpret("float32", tirx.reinterpret("int32", found) + exponent)
        # A smaller power underflows to 0, so a row whose keys are all masked becomes 0 / 0.
        is_tiny = power < tirx.const(-126.0, "float32")
        return tirx.Select(is_tiny, tirx.const(0.0, "float32"), found)

    return te.compute(data.shape, exponential, name="compute")


def at_most(index: Any, count: int, padded: int) -> Any:
    """Clamp an index of a padded axis: places from `count` on become the last one."""
    return index if padded == count else tirx.min(index, count - 1)


def column_of(panel: Any, lane: Any, columns: int) -> Any:
    """Return the column of a lane; padded lanes get the last column."""
    return at_most(panel * LANES + lane, columns, -(-columns // LANES) * LANES)


def _or_zero(value: Any, column: Any, columns: int) -> Any:
    if columns % LANES == 0:
        return value
    return tirx.Select(column < columns, value, tirx.const(0, "float32"))

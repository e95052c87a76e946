# SPDX-License-Identifier: Apache-2.0
"""How the factors of an attention's products lie in memory."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import te, tirx

from ....design_space.dot_products.dot_intrinsics import HALF
from ....design_space.dot_products.rounded_vectors import rounded

LANES = 16
"""The scores of a vector."""

PAIR = 2
"""The products of bfloat16 that a lane adds up at a time."""

Element = Callable[..., Any]
"""Gives an element of a tensor at indices."""

_FOR_FLOATS = (0.99999993, 0.69315307, 0.24015362, 0.05582632, 0.00898934, 0.00187758)
_FOR_HALVES = (0.99992522, 0.69583354, 0.22606716, 0.07802452)
"""The factors of polynomials that are two to the power of numbers from 0 to 1, within 7.5e-8 and
7.5e-5 of it: what bfloat16 holds, is within 2e-3."""

_BY_RULE = {"schedule_rule": "None"}


@dataclass(frozen=True)
class Extents:
    """The extents of an attention.

    - ``batch``: the batches and heads, at least one.
    - ``rows``, ``columns``: of the scores: the queries and the keys of a head.
    - ``depth``, ``width``: of a key, and of a value.
    """

    batch: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    width: int

    @property
    def panels(self) -> int:
        """The vectors that the scores of a row take."""
        return -(-self.columns // LANES)


class Packing:
    """Keys in panels of a vector; values and weights as they are.

    ``summed``: the columns that are summed up.
    """

    def __init__(self, extents: Extents) -> None:
        self._extents = extents
        self.summed = extents.columns

    def stored(self, value: Any) -> Any:
        """A number as it is stored."""
        return value

    def loaded(self, value: Any) -> Any:
        """A stored number, in float32."""
        return value

    def exponentials(self, data: te.Tensor) -> te.Tensor:
        """The exponentials of a tensor of numbers up to 0."""
        return _exponentials(data, _FOR_FLOATS)

    def scores(self, rows: int, queries: Element, keys: Element) -> te.Tensor:
        """The products of keys and queries at indices of (*batch, rows, panels, lanes).

        ``rows``: with those that are padded. ``queries``: as they are stored. ``keys``: at indices
        of (*batch, depth, columns).
        """
        one, key = self._extents, self.keys(keys)
        d = te.reduce_axis((0, one.depth), "d")

        def product(*at: Any) -> Any:
            query = self.loaded(queries(*at[:-2], d))
            return te.sum(query * self.loaded(key(*at[:-3], d, *at[-2:])), axis=[d])

        return compute_stage((*one.batch, rows, one.panels, LANES), product, "scores")

    def keys(self, keys: Element) -> Element:
        """The stored key at indices of (*batch, depth, panels, lanes)."""
        one = self._extents
        packed = compute_stage(
            (*one.batch, one.panels, one.depth, LANES),
            lambda *at: keys(*at[:-3], at[-2], column_of(at[-3], at[-1], one.columns)),
            "keys",
        )
        return lambda *at: packed(*at[:-3], at[-2], at[-3], at[-1])

    def values(self, values: Element) -> Element:
        """The stored value at indices of (*batch, columns, width)."""
        one = self._extents
        packed: Element = compute_stage((*one.batch, one.columns, one.width), values, "values")
        return packed

    def weights(self, rows: int, exponentials: Element) -> tuple[Element, Element]:
        """The weight, in float32, at indices of (*batch, rows, panels, lanes), and of columns.

        ``rows``: with those that are padded. ``exponentials``: at the first indices.
        """
        one = self._extents
        packed = compute_stage(
            (*one.batch, rows, one.panels, LANES),
            lambda *at: _or_zero(exponentials(*at), at[-2] * LANES + at[-1], one.columns),
            "weights",
        )
        return packed, lambda *at: packed(*at[:-1], at[-1] // LANES, at[-1] % LANES)


class InPairs(Packing):
    """The same of bfloat16: the two products that a lane adds up at a time lie side by side."""

    def __init__(self, extents: Extents) -> None:
        super().__init__(extents)
        self.summed = extents.panels * LANES

    def stored(self, value: Any) -> Any:
        """A number as it is stored."""
        return rounded(value) if str(value.ty) == "float32" else value.astype(HALF)

    def loaded(self, value: Any) -> Any:
        """A stored number, in float32."""
        return value.astype("float32")

    def exponentials(self, data: te.Tensor) -> te.Tensor:
        """The exponentials of a tensor of numbers up to 0, as exactly as bfloat16 holds them."""
        return _exponentials(data, _FOR_HALVES)

    def keys(self, keys: Element) -> Element:
        """The stored key at indices of (*batch, depth, panels, lanes)."""
        one = self._extents

        def key(*at: Any) -> Any:
            depth, column = at[-3] * PAIR + at[-1], column_of(at[-4], at[-2], one.columns)
            return self.stored(keys(*at[:-4], depth, column))

        shape = (*one.batch, one.panels, one.depth // PAIR, LANES, PAIR)
        packed = compute_stage(shape, key, "keys")
        return lambda *at: packed(*at[:-3], at[-2], at[-3] // PAIR, at[-1], at[-3] % PAIR)

    def values(self, values: Element) -> Element:
        """The stored value at indices of (*batch, columns, width)."""
        one = self._extents

        def value(*at: Any) -> Any:
            column = at_most(at[-3] * PAIR + at[-1], one.columns, self.summed)
            return self.stored(values(*at[:-3], column, at[-2]))

        packed = compute_stage((*one.batch, self.summed // PAIR, one.width, PAIR), value, "values")
        return lambda *at: packed(*at[:-2], at[-2] // PAIR, at[-1], at[-2] % PAIR)

    def weights(self, rows: int, exponentials: Element) -> tuple[Element, Element]:
        """The weight, in float32, at indices of (*batch, rows, panels, lanes), and of columns."""
        one = self._extents

        def weight(*at: Any) -> Any:
            found = exponentials(*at[:-1], at[-1] // LANES, at[-1] % LANES)
            return self.stored(_or_zero(found, at[-1], one.columns))

        packed = compute_stage((*one.batch, rows, self.summed), weight, "weights")

        def of_column(*at: Any) -> Any:
            return self.loaded(packed(*at))

        return lambda *at: of_column(*at[:-2], at[-2] * LANES + at[-1]), of_column


def _exponentials(data: te.Tensor, factors: Sequence[float]) -> te.Tensor:
    """``e ** data`` of float32 up to 0, in 14 or 12 instructions, where ``fast_exp`` has 24.

    A polynomial gives two to the power of the fraction; the whole part is added to its exponent.
    """

    def exponential(*at: Any) -> Any:
        power = data[at] * tirx.const(math.log2(math.e), "float32")
        whole = tirx.floor(power)
        part, found = power - whole, tirx.const(factors[-1], "float32")
        for factor in reversed(factors[:-1]):
            found = found * part + tirx.const(factor, "float32")
        exponent = tirx.shift_left(whole.astype("int32"), tirx.const(23, "int32"))
        found = tirx.reinterpret("float32", tirx.reinterpret("int32", found) + exponent)
        # A smaller power has no exponent. It is 0: a row that sees nothing is then 0 / 0.
        is_tiny = power < tirx.const(-126.0, "float32")
        return tirx.Select(is_tiny, tirx.const(0.0, "float32"), found)

    return te.compute(data.shape, exponential, name="compute")


def compute_stage(shape: Sequence[int], element: Element, name: str) -> te.Tensor:
    """A stage that the rule of the kernel schedules."""
    return te.compute(tuple(shape), element, name=name, attrs=_BY_RULE)


def at_most(index: Any, count: int, padded: int) -> Any:
    """An index of `padded` places, in which the places from `count` on are the last one."""
    return index if padded == count else tirx.min(index, count - 1)


def column_of(panel: Any, lane: Any, columns: int) -> Any:
    """The column of a lane; those that are padded are the last one."""
    return at_most(panel * LANES + lane, columns, -(-columns // LANES) * LANES)


def _or_zero(value: Any, column: Any, columns: int) -> Any:
    if columns % LANES == 0:
        return value
    return tirx.Select(column < columns, value, tirx.const(0, "float32"))

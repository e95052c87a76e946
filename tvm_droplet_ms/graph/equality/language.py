# SPDX-License-Identifier: Apache-2.0
"""The language of the e-graph: tensor operators, their types, e-nodes and terms. Imports no TVM."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Tensor(NamedTuple):
    """The type of a tensor: its static shape and its element type, such as "float32"."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count


class TupleType(NamedTuple):
    """The type of a tuple of tensors."""

    fields: tuple["Tensor | TupleType", ...]


Type = Tensor | TupleType


class Operator(NamedTuple):
    """An operator with its attributes: what a call is, but for its tensor operands.

    ``name``: the name: that of Relax without "relax." and "nn." for an operator that rules may
    name. ``attributes``: names and plain Python values, sorted by name.
    """

    name: str
    attributes: tuple[tuple[str, Any], ...] = ()

    def get(self, name: str) -> Any:
        """The value of an attribute."""
        for key, value in self.attributes:
            if key == name:
                return value
        names = [key for key, _ in self.attributes]
        raise KeyError(f"operator {self.name!r} has no attribute {name!r}, it has {names}")

    def replaced(self, **changes: Any) -> "Operator":
        """The operator with other values of some attributes."""
        return operator(self.name, **(dict(self.attributes) | changes))


def operator(name: str, **attributes: Any) -> Operator:
    """Make an operator. ``**attributes``: the attributes, hashable."""
    return Operator(name, tuple(sorted(attributes.items())))


class Node(NamedTuple):
    """An e-node: an operator and the e-classes of its operands."""

    operator: Operator
    children: tuple[int, ...] = ()


class Term(NamedTuple):
    """An expression over e-classes: operands are terms, or the numbers of e-classes."""

    operator: Operator
    children: tuple["Term | int", ...] = ()


COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum"})
"""Operators whose operands may be swapped: their e-nodes are equal in either order."""

UNARY = frozenset(
    {"relu", "relu6", "gelu", "silu", "sigmoid", "tanh", "clip", "sqrt", "exp", "erf", "negative"}
)
"""Elementwise operators of one operand."""

BINARY = frozenset({"add", "subtract", "multiply", "divide", "maximum", "minimum", "power"})
"""Elementwise operators of two operands, which broadcast as NumPy does."""

ELEMENTWISE = UNARY | BINARY

LEAVES = frozenset({"input", "constant", "eye", "full"})
"""Operators without operands. Those of "input" and "constant" have a number, and all have the type
of their value among their attributes."""


def leaf_type(leaf: Operator) -> Tensor:
    """The type of a leaf, which is in its attributes."""
    return Tensor(tuple(leaf.get("shape")), str(leaf.get("dtype")))


def input_leaf(index: int, type_: Type) -> Operator:
    """The leaf of a parameter. A parameter that is no tensor has the shape None."""
    if isinstance(type_, Tensor):
        return operator("input", index=index, shape=type_.shape, dtype=type_.dtype)
    return operator("input", index=index, shape=None, dtype="")


def constant_leaf(index: int, type_: Tensor) -> Operator:
    """The leaf of a constant whose array is kept elsewhere, under a number."""
    return operator("constant", index=index, shape=type_.shape, dtype=type_.dtype)


def full_leaf(value: float, type_: Tensor) -> Operator:
    """The leaf of a constant that has one value everywhere."""
    return operator("full", shape=type_.shape, value=value, dtype=type_.dtype)


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """The shape that shapes broadcast to, as in NumPy. None if they do not."""
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            if extent != 1:
                if result[axis] not in (1, extent):
                    return None
                result[axis] = extent
    return tuple(result)

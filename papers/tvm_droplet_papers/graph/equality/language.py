# SPDX-License-Identifier: Apache-2.0
"""The language of the e-graph: tensor operators, types, e-nodes and terms. Imports no TVM."""

from collections.abc import Sequence
from typing import Any, NamedTuple


class Tensor(NamedTuple):
    """A tensor type: a static shape and an element type, such as "float32"."""

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
    """An operator with its attributes, without the tensor operands.

    ``name``: for an operator that rules may match, the Relax name without "relax." and "nn.".
    ``attributes``: (name, plain Python value) pairs, sorted by name.
    """

    name: str
    attributes: tuple[tuple[str, Any], ...] = ()

    def get(self, name: str) -> Any:
        """The value of an attribute. Raises ``KeyError`` if the operator does not have it."""
        for key, value in self.attributes:
            if key == name:
                return value
        names = [key for key, _ in self.attributes]
        raise KeyError(f"operator {self.name!r} has no attribute {name!r}, it has {names}")

    def replaced(self, **changes: Any) -> "Operator":
        """Return the operator with some attributes changed."""
        return operator(self.name, **(dict(self.attributes) | changes))


def operator(name: str, **attributes: Any) -> Operator:
    """Make an operator. ``**attributes``: hashable attribute values."""
    return Operator(name, tuple(sorted(attributes.items())))


class Node(NamedTuple):
    """An e-node: an operator and the e-classes of its operands."""

    operator: Operator
    children: tuple[int, ...] = ()


class Term(NamedTuple):
    """An expression over e-classes. Its operands are terms or e-class numbers."""

    operator: Operator
    children: tuple["Term | int", ...] = ()


COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum"})
"""Commutative operators. Their e-nodes are equal in either operand order."""

UNARY = frozenset(
    {"relu", "relu6", "gelu", "silu", "sigmoid", "tanh", "clip", "sqrt", "exp", "erf", "negative"}
)
"""Elementwise operators with one operand."""

BINARY = frozenset({"add", "subtract", "multiply", "divide", "maximum", "minimum", "power"})
"""Elementwise operators with two operands, which broadcast as in NumPy."""

ELEMENTWISE = UNARY | BINARY

LEAVES = frozenset({"input", "constant", "eye", "full"})
"""Operators without operands. Their attributes include the type of their value; "input" and
"constant" also have an index."""


def leaf_type(leaf: Operator) -> Tensor:
    """The type of a leaf, from its attributes."""
    return Tensor(tuple(leaf.get("shape")), str(leaf.get("dtype")))


def input_leaf(index: int, type_: Type) -> Operator:
    """The leaf of a parameter. A non-tensor parameter has the shape None."""
    if isinstance(type_, Tensor):
        return operator("input", index=index, shape=type_.shape, dtype=type_.dtype)
    return operator("input", index=index, shape=None, dtype="")


def constant_leaf(index: int, type_: Tensor) -> Operator:
    """The leaf of a constant. The importer stores its array under ``index``."""
    return operator("constant", index=index, shape=type_.shape, dtype=type_.dtype)


def full_leaf(value: float, type_: Tensor) -> Operator:
    """The leaf of a constant whose elements all have the same value."""
    return operator("full", shape=type_.shape, value=value, dtype=type_.dtype)


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """The broadcast shape of several shapes, as in NumPy; None if they are incompatible."""
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            if extent != 1:
                if result[axis] not in (1, extent):
                    return None
                result[axis] = extent
    return tuple(result)

# SPDX-License-Identifier: Apache-2.0
"""An e-graph, which represents many equivalent graphs by congruence. Imports no TVM.

After "egg: Fast and Extensible Equality Saturation" (Willsey et al., POPL 2021). It has one
analysis: the type of an e-class, and whether it depends only on weights.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from .language import COMMUTATIVE, LEAVES, Node, Operator, Tensor, Type, leaf_type

Infer = Callable[[Operator, tuple[Type, ...]], Type | None]
"""Infers the type of a call from the types of its operands; None where the call is illegal."""


_Derived = TypeVar("_Derived")


class NodeLimit(Exception):
    """The e-graph would have more e-nodes than its limit."""


class IllegalTerm(Exception):
    """A term has no type: its operator rejects the operands."""


class OtherType(IllegalTerm):
    """The type of a term differs from the type of the class that it should equal."""


class Facts(NamedTuple):
    """The analysis data of an e-class.

    ``type``: the type of its value. ``weight_only``: whether some e-node of the class depends only
    on weights.
    """

    type: Type
    weight_only: bool


WEIGHT_SHARE = 10
"""The e-graph's limit for weight e-nodes, as a multiple of the limit for the other e-nodes."""


def _key(node: Node) -> Node:
    """The memo key that equal e-nodes share. It sorts the operands of commutative operators."""
    if node.operator.name in COMMUTATIVE and node.children[0] > node.children[1]:
        return Node(node.operator, node.children[::-1])
    return node


def _by_name(graph: "EGraph") -> dict[str, list[tuple[int, Node]]]:
    found: dict[str, list[tuple[int, Node]]] = {}
    for number, nodes in graph.classes():
        for node in nodes:
            found.setdefault(node.operator.name, []).append((number, node))
    return found


class EGraph:
    """An e-graph.

    - ``infer``: infers the types of calls. Leaves carry their types.
    - ``weights``: the indices of the inputs that are weights.
    - ``limit``: the maximum number of e-nodes, checked when an e-node is added. Weight e-nodes have
      a separate limit, ten times as large, because they are neither priced nor extracted.
    - ``size``: the number of non-weight e-nodes. Until :meth:`rebuild`, it includes duplicates that
      unions created.
    - ``weight_size``: the number of weight e-nodes.
    """

    def __init__(
        self, infer: Infer, weights: frozenset[int] = frozenset(), limit: int | None = None
    ) -> None:
        self.limit = limit
        self.size = 0
        self.weight_size = 0
        self._infer = infer
        self._weights = weights
        self._parents: list[int] = []
        self._facts: list[Facts] = []
        self._memo: dict[Node, int] = {}
        self._nodes: dict[int, list[Node]] = {}
        self._uses: dict[int, list[tuple[Node, int]]] = {}
        self._pending: list[int] = []
        self._derived: dict[Any, Any] = {}

    @property
    def count(self) -> int:
        """The number of classes created so far, which is also the next class number."""
        return len(self._parents)

    def find(self, number: int) -> int:
        """The representative of a class after all unions."""
        parents = self._parents
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    def facts(self, number: int) -> Facts:
        """The facts of a class."""
        return self._facts[self.find(number)]

    def type(self, number: int) -> Tensor:
        """The type of a tensor class. Raises ``TypeError`` if the class is a tuple."""
        type_ = self.facts(number).type
        if not isinstance(type_, Tensor):
            raise TypeError(f"class {number} has the type {type_}, expected a tensor")
        return type_

    def shape(self, number: int) -> tuple[int, ...]:
        """The shape of a tensor class. Raises ``TypeError`` if the class is a tuple."""
        return self.type(number).shape

    def is_weight(self, number: int) -> bool:
        """True if the value of a class depends only on weights."""
        return self.facts(number).weight_only

    def nodes(self, number: int) -> list[Node]:
        """The e-nodes of a class, in insertion order."""
        return self._nodes[self.find(number)]

    def classes(self) -> Iterator[tuple[int, list[Node]]]:
        """The classes and their e-nodes, in the order of their numbers."""
        for number in sorted(self._nodes):
            yield number, self._nodes[number]

    def named(self, *names: str) -> list[tuple[int, Node]]:
        """The (class, e-node) pairs of the named operators. Valid after :meth:`rebuild`."""
        found = self.derived(_by_name)
        return [pair for name in names for pair in found.get(name, ())]

    def derived(self, compute: "Callable[[EGraph], _Derived]") -> _Derived:
        """Return ``compute(self)``, cached until the e-graph changes."""
        if compute not in self._derived:
            self._derived[compute] = compute(self)
        value: _Derived = self._derived[compute]
        return value

    def named_in(self, number: int, *names: str) -> list[Node]:
        """The e-nodes of a class whose operator is one of ``names``."""
        return [node for node in self.nodes(number) if node.operator.name in names]

    def users(self, number: int) -> list[tuple[int, Node]]:
        """The distinct e-nodes that use a class as an operand, as (class, e-node) pairs."""
        found: dict[Node, int] = {}
        for node, user in self._uses.get(self.find(number), ()):
            found[_key(self._canonical(node))] = self.find(user)
        return [(user, node) for node, user in found.items()]

    def add(self, operator: Operator, children: tuple[int, ...] = ()) -> int:
        """Add an e-node.

        ``children``: the classes of its operands. Returns the class of the e-node, which may be an
        existing one. Raises ``IllegalTerm`` if the operator rejects operands of these types. Raises
        ``NodeLimit`` if the e-graph is full.
        """
        node = self._canonical(Node(operator, children))
        known = self._memo.get(_key(node))
        if known is not None:
            return self.find(known)
        facts = self._facts_of(node)
        self._count(facts.weight_only)
        number = len(self._parents)
        self._parents.append(number)
        self._facts.append(facts)
        self._memo[_key(node)] = number
        self._nodes[number] = [node]
        for child in dict.fromkeys(node.children):
            self._uses.setdefault(child, []).append((node, number))
        self._derived.clear()
        return number

    def class_of(self, node: Node) -> int | None:
        """The class of an e-node; None if it does not exist. Valid after :meth:`rebuild`."""
        number = self._memo.get(_key(node))
        return None if number is None else self.find(number)

    def union(self, left: int, right: int) -> bool:
        """Merge two classes. Call :meth:`rebuild` before the next lookup.

        Returns whether the classes were distinct. Raises ``ValueError`` if their types differ,
        because then they cannot be equal.
        """
        left, right = self.find(left), self.find(right)
        if left == right:
            return False
        one, other = self._facts[left], self._facts[right]
        if one.type != other.type:
            raise ValueError(
                f"classes {left} and {right} have the types {one.type} and {other.type}: a rule "
                "that makes them equal is wrong"
            )
        # The older number represents both classes, which keeps the order of the graph.
        keep, drop = min(left, right), max(left, right)
        self._parents[drop] = keep
        self._facts[keep] = Facts(one.type, one.weight_only or other.weight_only)
        self._nodes[keep] = self._nodes[keep] + self._nodes.pop(drop)
        self._uses[keep] = self._uses.get(keep, []) + self._uses.pop(drop, [])
        self._pending.append(keep)
        self._derived.clear()
        return True

    def rebuild(self) -> None:
        """Restore congruence: merge the classes of congruent e-nodes and remove duplicates."""
        if not self._pending:
            return
        while self._pending:
            for number in {self.find(number) for number in self._pending_taken()}:
                self._repair(number)
        memo: dict[Node, int] = {}
        for number, nodes in self._nodes.items():
            unique = {_key(node): node for node in map(self._canonical, reversed(nodes))}
            self._nodes[number] = list(unique.values())[::-1]
            for key in unique:
                memo[key] = number
        self._memo = memo
        self.size = sum(
            len(nodes) for number, nodes in self._nodes.items() if not self.is_weight(number)
        )
        self.weight_size = len(memo) - self.size
        self._derived.clear()

    def copy(self) -> "EGraph":
        """Return an independent copy. Call :meth:`rebuild` first."""
        twin = EGraph(self._infer, self._weights, self.limit)
        twin.size, twin.weight_size = self.size, self.weight_size
        twin._parents = list(self._parents)
        twin._facts = list(self._facts)
        twin._memo = dict(self._memo)
        twin._nodes = dict(self._nodes)
        twin._uses = {number: list(uses) for number, uses in self._uses.items()}
        return twin

    def _count(self, weight: bool) -> None:
        if self.limit is not None:
            full = self.size >= self.limit
            if self.weight_size >= WEIGHT_SHARE * self.limit if weight else full:
                raise NodeLimit(f"the e-graph has its limit of {self.limit} e-nodes")
        if weight:
            self.weight_size += 1
        else:
            self.size += 1

    def _pending_taken(self) -> list[int]:
        taken, self._pending = self._pending, []
        return taken

    def _repair(self, number: int) -> None:
        seen: dict[Node, int] = {}
        for node, user in self._uses.pop(number, []):
            key = _key(self._canonical(node))
            user = self.find(user)
            if key in seen:
                self.union(seen[key], user)
                user = self.find(user)
            seen[key] = user
            if self.is_weight(number):
                self._spread(key, user)
        # A class that uses itself may have been merged in this loop. Keep the uses it gained.
        keep = self.find(number)
        self._uses[keep] = self._uses.get(keep, []) + list(seen.items())

    def _spread(self, node: Node, user: int) -> None:
        """Mark a class as a weight if all operands of this e-node are now weights."""
        facts = self._facts[user]
        if not facts.weight_only and all(map(self.is_weight, node.children)):
            self._facts[user] = Facts(facts.type, True)
            self._pending.append(user)

    def _canonical(self, node: Node) -> Node:
        children = tuple([self.find(child) for child in node.children])
        return node if children == node.children else Node(node.operator, children)

    def infer_type(self, operator: Operator, types: tuple[Type, ...]) -> Type:
        """The result type of an operator on operands of the given types.

        Raises ``IllegalTerm`` if the operator rejects them.
        """
        if operator.name in LEAVES and operator.get("shape") is not None:
            return leaf_type(operator)
        type_ = self._infer(operator, types)
        if type_ is None:
            raise IllegalTerm(f"{operator.name} refuses operands of the types {types}")
        return type_

    def _facts_of(self, node: Node) -> Facts:
        operator = node.operator
        type_ = self.infer_type(operator, tuple([self.facts(c).type for c in node.children]))
        if operator.name == "input":
            return Facts(type_, operator.get("index") in self._weights)
        return Facts(type_, all(map(self.is_weight, node.children)) and operator.name != "opaque")

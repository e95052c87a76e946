# SPDX-License-Identifier: Apache-2.0
"""Writes extracted graphs as Relax functions."""

import hashlib
import heapq
from collections.abc import Iterator

import numpy as np

from tvm import relax
from tvm_droplet_ms.model.bindings import Expr, array_of, constant

from ..equality.egraph import EGraph
from ..equality.language import Node, Operator
from ..extraction.implementations import AS_TYPED, SAME, conversion, moves_nothing, stored
from ..extraction.problem import Choice, Place, Plan, Step, needs_of
from ..interpreter import Array, evaluate, folded
from .importer import Imported, with_operands
from .operators import write_call
from .types import type_of


def export_function(imported: Imported, plan: Plan, fold: bool = True) -> relax.Function:
    """Write an extracted graph as a Relax function.

    ``imported``: the imported function with its e-graph. ``plan``: the steps that compute the
    roots. ``fold``: whether to evaluate subgraphs that depend only on constants, with NumPy.
    Returns a function with the same parameters and results.
    """
    return _Exporter(imported, plan, fold).function()


class _Exporter:
    def __init__(self, imported: Imported, plan: Plan, fold: bool) -> None:
        self.imported = imported
        self.graph = imported.graph
        self.plan = plan
        self.fold = fold
        self.builder = relax.BlockBuilder()
        self.bindings: list[relax.VarBinding] = []
        self.values: dict[Place, Expr] = {}
        self.arrays: dict[int, Array | None] = {}
        self.constants: dict[tuple[str, tuple[int, ...], bytes], Expr] = {}
        self.grounded: dict[int, Node] = {}
        self.roots = [(self.graph.find(root), AS_TYPED) for root in imported.roots]
        self.hints = {self.graph.find(n): hint for n, hint in sorted(imported.hints.items())}

    def function(self) -> relax.Function:
        weights = self._weight_calls()
        for place, step in self._ordered():
            while weights and weights[-1] < place[0]:
                self._value((weights.pop(), AS_TYPED))
            self.values[place] = self._step(place, step)
        results = [self._value(root) for root in self.roots]
        old = self.imported.function
        body = relax.Tuple(results) if self.imported.is_tuple else results[0]
        sequence = self.builder.normalize(relax.SeqExpr([relax.DataflowBlock(self.bindings)], body))
        return relax.Function(old.params, sequence, old.ret_ty, old.is_pure, old.attrs, old.span)

    def _ordered(self) -> list[tuple[Place, Step]]:
        """Sort the steps topologically. Ties follow the order of the imported graph."""
        waiting = {place: len(needs_of(step)) for place, step in self.plan.steps.items()}
        users: dict[Place, list[Place]] = {}
        for place, step in self.plan.steps.items():
            for need in needs_of(step):
                users.setdefault(need, []).append(place)
        ready = [place for place, count in waiting.items() if count == 0]
        heapq.heapify(ready)
        ordered = []
        while ready:
            place = heapq.heappop(ready)
            ordered.append((place, self.plan.steps[place]))
            for user in users.get(place, ()):
                waiting[user] -= 1
                if waiting[user] == 0:
                    heapq.heappush(ready, user)
        return ordered

    def _weight_calls(self) -> list[int]:
        """The weight classes that stay calls, in descending order.

        Popping the last one lets ``function`` emit them at their original positions.
        """
        found: set[int] = set()
        choices = [step for step in self.plan.steps.values() if isinstance(step, Choice)]
        waiting = [child for choice in choices for child in choice.what.node.children]
        while waiting:
            number = self.graph.find(waiting.pop())
            if self.graph.is_weight(number) and number not in found and not self._is_known(number):
                found.add(number)
                waiting += self._derivation(number).children
        return sorted(found, reverse=True)

    def _is_known(self, number: int) -> bool:
        """True if a weight class is a leaf or becomes a constant. False without folding."""
        is_leaf = self._leaf(number) is not None
        return self.fold and (is_leaf or self._array(number) is not None)

    def _step(self, place: Place, step: Step) -> Expr:
        if isinstance(step, Choice):
            way = step.what
            pairs = zip(way.node.children, way.operands, strict=True)
            operands = [self._value((self.graph.find(child), layout)) for child, layout in pairs]
            if way.operator == SAME:
                # A dataflow block must return its own variables.
                return self._bind(operands[0], place) if place in self.roots else operands[0]
            return self._call(place, way.operator, operands)
        return self._converted(place, step.source)

    def _value(self, place: Place) -> Expr:
        if place not in self.values:
            # Steps exist for all values except weights.
            self.values[place] = self._weight(place)
        return self.values[place]

    def _call(self, place: Place, op: Operator, operands: list[Expr]) -> Expr:
        types = tuple(type_of(operand.ty) for operand in operands)
        template = self.imported.templates.get((op, types))
        if op.name == "input":
            return self.imported.inputs[op.get("index")]
        if op.name in ("constant", "full", "eye"):
            return template if template is not None else constant(np.asarray(evaluate(op, [])))
        if op.name == "tuple":
            return self._bind(relax.Tuple(operands), place)
        if template is not None:
            return self._bind(with_operands(template, operands), place)
        return self._bind(write_call(op, operands), place)

    def _bind(self, expr: Expr, place: Place) -> Expr:
        value = self.builder.normalize(expr)
        new_var = relax.Var if place in self.roots else relax.DataflowVar
        var = new_var(self.hints.get(place[0], "lv"), value.ty)
        self.bindings.append(relax.VarBinding(var, value))
        return var

    def _converted(self, place: Place, source: Place) -> Expr:
        value, axes = self.values[source], conversion(source[1], place[1])
        shape = stored(self.graph.type(place[0]), source[1]).shape
        if moves_nothing(shape, axes):
            extents = tuple(shape[axis] for axis in axes)
            return self._bind(relax.op.reshape(value, extents), place)
        return self._bind(relax.op.permute_dims(value, list(axes)), place)

    def _weight(self, place: Place) -> Expr:
        number, layout = place
        if layout != AS_TYPED:
            return self._stored_weight(place)
        leaf = self._leaf(number)
        if leaf is not None:
            return self._call(place, leaf.operator, [])
        array = self._array(number) if self.fold else None
        return self._weight_call(place) if array is None else self._constant(array)

    def _stored_weight(self, place: Place) -> Expr:
        number, layout = place
        array = self._array(number)
        if array is not None:
            wide = array.reshape((1,) * (len(layout) - array.ndim) + array.shape)
            return self._constant(np.ascontiguousarray(wide.transpose(layout)))
        value, type_ = self._value((number, AS_TYPED)), self.graph.type(number)
        if type_.rank < len(layout):
            shape = (1,) * (len(layout) - type_.rank) + type_.shape
            value = self._bind(relax.op.reshape(value, shape), place)
        return self._bind(relax.op.permute_dims(value, list(layout)), place)

    def _constant(self, array: Array) -> Expr:
        """Make a constant, shared by equal arrays: equal slices of a weight are stored once."""
        key = str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).digest()
        if key not in self.constants:
            self.constants[key] = constant(array)
        return self.constants[key]

    def _leaf(self, number: int) -> Node | None:
        leaves = [node for node in self.graph.nodes(number) if not node.children]
        return leaves[0] if leaves else None

    def _weight_call(self, place: Place) -> Expr:
        node = self._derivation(place[0])
        operands = [self._value((self.graph.find(child), AS_TYPED)) for child in node.children]
        return self._call(place, node.operator, operands)

    def _derivation(self, number: int) -> Node:
        """An e-node of a weight class that can be computed from leaves without a cycle."""
        if not self.grounded:
            self.grounded = _grounded(self.graph)
        return self.grounded[self.graph.find(number)]

    def _array(self, number: int) -> Array | None:
        """The value of a weight class. None if NumPy cannot compute it."""
        number = self.graph.find(number)
        # An explicit stack, because a chain of calls may exceed Python's recursion limit.
        waiting = [] if number in self.arrays else [self._computed(number)]
        while waiting:
            need = next(waiting[-1], None)
            if need is None:
                waiting.pop()
            elif need not in self.arrays:
                waiting.append(self._computed(need))
        return self.arrays[number]

    def _computed(self, number: int) -> Iterator[int]:
        """Compute a weight class. Yield each class that the caller must compute first."""
        # An e-node that needs its own class finds None and is skipped.
        self.arrays[number] = None
        for node in self.graph.nodes(number):
            yield from map(self.graph.find, node.children)
            array = self._array_of(number, node)
            if array is not None:
                self.arrays[number] = array
                break

    def _array_of(self, number: int, node: Node) -> Array | None:
        op = node.operator
        if op.name == "constant":
            return array_of(self.imported.constants[op.get("index")])
        operands = [self.arrays[self.graph.find(child)] for child in node.children]
        known = [operand for operand in operands if operand is not None]
        if len(known) < len(operands):
            return None
        return folded(op, known, self.graph.facts(number).type)


def _grounded(graph: EGraph) -> dict[int, Node]:
    """For each weight class, an e-node that can be computed from leaves without a cycle."""
    found: dict[int, Node] = {}
    changed = True
    while changed:
        changed = False
        for number, nodes in graph.classes():
            if number in found or not graph.is_weight(number):
                continue
            ready = [n for n in nodes if all(graph.find(child) in found for child in n.children)]
            if ready:
                found[number], changed = ready[0], True
    return found

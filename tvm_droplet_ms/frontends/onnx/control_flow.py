# SPDX-License-Identifier: Apache-2.0
"""Resolve ``If`` of known condition, and unroll ``Loop`` and ``Scan`` of known length.

TVM's importer has no loops. Exporters write them for recurrent layers and for Python loops, whose
length follows from the extents of the inputs.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto

from .order import subgraphs

Array = np.ndarray[Any, Any]

NODES = 10_000
"""Maximum number of nodes from all unrolled loops: many kernel calls take long to compile."""


class UnknownLength(Exception):
    """A partly unrolled loop turns out to be of unknown length or too long."""


@dataclass
class Steps:
    """The nodes and constants that replace a loop, or one step of a loop.

    ``nodes``: the nodes in order. ``constants``: the constants that the nodes read.
    """

    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)


def take_branch(node: NodeProto, condition: bool, new_name: Callable[[str], str]) -> Steps:
    """Return the taken branch of an ``If`` of known condition, under new names.

    ``new_name``: makes an unused name from a similar one.
    """
    wanted = "then_branch" if condition else "else_branch"
    branch = next(each.g for each in node.attribute if each.name == wanted)
    results = [(value.name, output) for value, output in zip(branch.output, node.output) if output]
    made = {name for inner in branch.node for name in inner.output}
    names: dict[str, str] = {}
    for name, output in results:
        # A node of the branch computes the output itself. Other values are copied.
        if name in made:
            names.setdefault(name, output)
    steps = _copied(branch, names, new_name)
    steps.nodes += [
        onnx.helper.make_node("Identity", [names.get(name, name)], [output])
        for name, output in results
        if names.get(name) != output
    ]
    return steps


def _copied(graph: GraphProto, names: dict[str, str], new_name: Callable[[str], str]) -> Steps:
    """Copy a subgraph. ``names``: new names of some values; the new names of all are added."""
    copy = deepcopy(graph)
    made = [name for node in copy.node for name in node.output if name]
    made += [tensor.name for tensor in copy.initializer]
    names.update({name: new_name(name) for name in dict.fromkeys(made) if name not in names})
    for node in copy.node:
        rename(node, names)
        node.name = new_name(node.name) if node.name else ""
    for tensor in copy.initializer:
        tensor.name = names[tensor.name]
    return Steps(list(copy.node), list(copy.initializer))


def rename(node: NodeProto, names: dict[str, str]) -> None:
    """Rename the inputs and outputs of a node, in its subgraphs too.

    ``node`` is changed. ``names``: map from old to new names.
    """
    for side in (node.input, node.output):
        if any(name in names for name in side):
            side[:] = [names.get(name, name) for name in side]
    for graph in subgraphs(node):
        _rename_graph(graph, names)


def _rename_graph(graph: GraphProto, names: dict[str, str]) -> None:
    own = {value.name for value in [*graph.input, *graph.initializer]}
    own.update(name for inner in graph.node for name in inner.output)
    outer = {old: new for old, new in names.items() if old not in own}
    for inner in graph.node:
        rename(inner, outer)
    for value in graph.output:
        value.name = outer.get(value.name, value.name)


def _keeps_condition(body: GraphProto) -> bool:
    """True if a loop's body passes its condition on unchanged, so that only the limit ends it."""
    sources = {node.output[0]: node.input[0] for node in body.node if node.op_type == "Identity"}
    name = body.output[0].name
    while name in sources:
        name = sources[name]
    return bool(name == body.input[1].name)


class Unroller:
    """Unrolls loops.

    ``new_name``: makes an unused name from a similar one.
    """

    def __init__(self, new_name: Callable[[str], str]) -> None:
        self._new_name = new_name
        self._left = NODES
        self._taken: dict[str, int] = {}
        self._scanned: dict[str, list[list[str]]] = {}

    def loop(self, node: NodeProto, limit: int | None, goes_on: bool | None) -> Steps | None:
        """Unroll one step of a ``Loop``.

        ``node``: the loop; from the second step on, the last node that this method returned.
        ``limit``: the maximum number of steps. None for no limit, where `goes_on` decides.
        ``goes_on``: the loop's condition. None if it is not known. Returns a step followed by the
        rest of the loop, or the loop's outputs once it is over. None if the length is not known or
        the loop is too long. Raises ``UnknownLength`` if this shows after some steps.
        """
        key = next(name for name in node.output if name)
        step = self._taken.get(key, 0)
        body = next(each.g for each in node.attribute if each.name == "body")
        states = len(node.input) - 2
        # TorchScript's ``while`` has a meaningless limit: only the condition ends it.
        is_counted = limit is not None and (limit <= NODES or _keeps_condition(body))
        known = limit if limit is not None and is_counted else 0
        is_known = goes_on is not None and known * len(body.node) <= self._left
        if is_known and (not goes_on or (limit is not None and step >= limit)):
            return self._end(node, key, states)
        self._left -= len(body.node) if is_known else 0
        if not is_known or self._left < 0:
            if step:  # Before the first step, an untouched loop can stay.
                raise UnknownLength
            return None
        steps = Steps()
        number = self._constant(steps, np.array(step, np.int64), "step")
        true = self._constant(steps, np.array(True), "goes_on")
        inputs = [number, true, *node.input[2:]]
        outputs = self._copy(steps, body, inputs)
        self._taken[key] = step + 1
        self._scanned.setdefault(key, []).append(outputs[1 + states :])
        rest = deepcopy(node)
        rest.input[1:] = outputs[: 1 + states]
        steps.nodes.append(rest)
        return steps

    def scan(self, node: NodeProto, ranks: Sequence[int], length: int) -> Steps | None:
        """Unroll all steps of a ``Scan``.

        ``node``: the scan, of version 9 or later. ``ranks``: the rank of each scanned input.
        ``length``: the number of steps. Returns the replacement. None if the scan is empty or too
        long.
        """
        attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        body, count = attributes["body"], attributes["num_scan_inputs"]
        self._left -= length * (len(body.node) + count)
        if length < 1 or self._left < 0:
            return None
        states = len(node.input) - count
        axes = attributes.get("scan_input_axes", [0] * count)
        backwards = attributes.get("scan_input_directions", [0] * count)
        steps = Steps()
        state, scanned = list(node.input[:states]), []
        for step in range(length):
            elements = []
            for name, rank, axis, back in zip(
                node.input[states:], ranks, axes, backwards, strict=True
            ):
                number = np.array(length - 1 - step if back else step, np.int64)
                index = self._constant(steps, number, "step")
                elements.append(self._new_name(f"{name}_element"))
                steps.nodes.append(
                    onnx.helper.make_node("Gather", [name, index], [elements[-1]], axis=axis % rank)
                )
            outputs = self._copy(steps, body, [*state, *elements])
            state = outputs[:states]
            scanned.append(outputs[states:])
        results = len(node.output) - states
        ends = attributes.get("scan_output_axes", [0] * results)
        reverses = attributes.get("scan_output_directions", [0] * results)
        self._finish(steps, node, state)
        for at, output in enumerate(node.output[states:]):
            parts = [each[at] for each in scanned]
            self._stack(steps, parts[::-1] if reverses[at] else parts, ends[at], output)
        return steps

    def _end(self, node: NodeProto, key: str, states: int) -> Steps | None:
        """Pass the states on, and stack the scanned outputs."""
        scanned = self._scanned.get(key, [])
        if not scanned and any(node.output[states:]):
            return None
        steps = Steps()
        self._finish(steps, node, node.input[2:])
        for index, output in enumerate(node.output[states:]):
            self._stack(steps, [each[index] for each in scanned], 0, output)
        return steps

    def _finish(self, steps: Steps, node: NodeProto, states: Sequence[str]) -> None:
        steps.nodes += [
            onnx.helper.make_node("Identity", [state], [output])
            for state, output in zip(states, node.output)
            if output
        ]

    def _stack(self, steps: Steps, parts: Sequence[str], axis: int, output: str) -> None:
        """Stack values along a new axis."""
        if not output:
            return
        at = self._constant(steps, np.array([axis], np.int64), "axis")
        rows = [self._new_name(f"{part}_row") for part in parts]
        steps.nodes += [
            onnx.helper.make_node("Unsqueeze", [part, at], [row])
            for part, row in zip(parts, rows, strict=True)
        ]
        steps.nodes.append(onnx.helper.make_node("Concat", rows, [output], axis=axis))

    def _constant(self, steps: Steps, values: Array, hint: str) -> str:
        name = self._new_name(f"loop_{hint}")
        steps.constants.append(onnx.numpy_helper.from_array(values, name))
        return name

    def _copy(self, steps: Steps, body: GraphProto, inputs: Sequence[str]) -> list[str]:
        """Copy a body for the given inputs, and return the names of its outputs."""
        names: dict[str, str] = {
            value.name: name for value, name in zip(body.input, inputs, strict=True)
        }
        copied = _copied(body, names, self._new_name)
        steps.nodes += copied.nodes
        steps.constants += copied.constants
        return [names.get(value.name, value.name) for value in body.output]

# SPDX-License-Identifier: Apache-2.0
"""``Loop`` and ``Scan`` of known length, step by step.

TVM's importer has neither. Exporters write them for recurrent layers and for loops of Python, whose
length follows from the extents of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .branches import rename

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

Array = np.ndarray[Any, Any]

NODES = 10_000
"""The most nodes that loops of a model become: a kernel's call for each takes long to compile."""


class UnknownLength(Exception):
    """A loop, of which some steps were written out, ends by what its inputs hold."""


@dataclass
class Steps:
    """The nodes and constants that take the place of a loop, or of a step of it.

    ``nodes``: the nodes in order. ``constants``: what they read.
    """

    nodes: list[NodeProto] = field(default_factory=list)
    constants: list[TensorProto] = field(default_factory=list)


class Unroller:
    """Writes the bodies of loops out.

    ``new_name``: makes a name that nothing in the model has, of one that is like it.
    """

    def __init__(self, new_name: Callable[[str], str]) -> None:
        import onnx

        self._onnx = onnx
        self._new_name = new_name
        self._left = NODES
        self._taken: dict[str, int] = {}
        self._scanned: dict[str, list[list[str]]] = {}

    def loop(self, node: NodeProto, limit: int | None, goes_on: bool | None) -> Steps | None:
        """Write one step of a ``Loop`` out.

        ``node``: the loop. In the second step and later ones it is the last of what this returned.
        ``limit``: the most steps. None for no limit, where `goes_on` decides. ``goes_on``: its
        condition. None if that is not known. Returns a step and the rest of the loop, or what
        remains of one that is over. None if its length is not known, or it is too long. Raises
        ``UnknownLength`` if that is found out after some steps.
        """
        key = next(name for name in node.output if name)
        step = self._taken.get(key, 0)
        body = _body(node)
        states = len(node.input) - 2
        if goes_on is None or (limit or 0) * len(body.node) > self._left:
            self._give_up(step)
            return None
        if not goes_on or (limit is not None and step >= limit):
            return self._end(node, key, states)
        self._left -= len(body.node)
        if self._left < 0:
            self._give_up(step)
            return None
        steps = Steps()
        number = self._constant(steps, np.array(step, np.int64), "step")
        true = self._constant(steps, np.array(True), "goes_on")
        inputs = [number, true, *node.input[2:]]
        outputs = self._copy(steps, body, inputs)
        self._taken[key] = step + 1
        self._scanned.setdefault(key, []).append(outputs[1 + states :])
        rest = type(node)()
        rest.CopyFrom(node)
        rest.input[1:] = outputs[: 1 + states]
        steps.nodes.append(rest)
        return steps

    def scan(self, node: NodeProto, ranks: Sequence[int], length: int) -> Steps | None:
        """Write all steps of a ``Scan`` out.

        ``node``: the scan, of version 9 or later. ``ranks``: the rank of each of its scanned
        inputs. ``length``: the number of steps. Returns what takes its place. None if it is empty
        or too long.
        """
        attributes = {
            each.name: self._onnx.helper.get_attribute_value(each) for each in node.attribute
        }
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
                    self._onnx.helper.make_node(
                        "Gather", [name, index], [elements[-1]], axis=axis % rank
                    )
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

    @staticmethod
    def _give_up(step: int) -> None:
        """A loop that was not begun can stay as it is."""
        if step:
            raise UnknownLength

    def _end(self, node: NodeProto, key: str, states: int) -> Steps | None:
        """Hand the states on, and put what was scanned together."""
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
            self._onnx.helper.make_node("Identity", [state], [output])
            for state, output in zip(states, node.output)
            if output
        ]

    def _stack(self, steps: Steps, parts: Sequence[str], axis: int, output: str) -> None:
        """Put values side by side along a new axis."""
        if not output:
            return
        at = self._constant(steps, np.array([axis], np.int64), "axis")
        rows = [self._new_name(f"{part}_row") for part in parts]
        steps.nodes += [
            self._onnx.helper.make_node("Unsqueeze", [part, at], [row])
            for part, row in zip(parts, rows, strict=True)
        ]
        steps.nodes.append(self._onnx.helper.make_node("Concat", rows, [output], axis=axis))

    def _constant(self, steps: Steps, values: Array, hint: str) -> str:
        name = self._new_name(f"loop_{hint}")
        steps.constants.append(self._onnx.numpy_helper.from_array(values, name))
        return name

    def _copy(self, steps: Steps, body: GraphProto, inputs: Sequence[str]) -> list[str]:
        """Write a body out for some inputs, and return the names of its outputs."""
        copy = type(body)()
        copy.CopyFrom(body)
        names: dict[str, str] = {
            value.name: name for value, name in zip(copy.input, inputs, strict=True)
        }
        made = [name for node in copy.node for name in node.output if name]
        made += [tensor.name for tensor in copy.initializer]
        names.update({name: self._new_name(name) for name in made})
        for node in copy.node:
            rename(node, names)
            node.name = self._new_name(node.name) if node.name else ""
        for tensor in copy.initializer:
            tensor.name = names[tensor.name]
        steps.nodes += list(copy.node)
        steps.constants += list(copy.initializer)
        return [names.get(value.name, value.name) for value in copy.output]


def _body(node: NodeProto) -> GraphProto:
    bodies: Mapping[str, GraphProto] = {each.name: each.g for each in node.attribute}
    return bodies["body"]

# SPDX-License-Identifier: Apache-2.0
"""``torch.nn.LSTM``, ``GRU`` and ``RNN``: one kernel per layer for any sequence length.

PyTorch's own decomposition unrolls every step. The kernels are shared with ONNX's operators, which
order the gates differently.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tvm import relax

from ..onnx.operators.nodes.recurrence.cells import Kind
from ..onnx.operators.nodes.recurrence.converters import recurrent

KEPT = ("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")
"""Operators that are not decomposed unless a layer has projections."""


class _Kind(NamedTuple):
    """A PyTorch cell and ONNX's operator; ``gates``: PyTorch's index of each of ONNX's gates."""

    operator: Kind
    gates: tuple[int, ...]
    attributes: dict[str, Any]


KINDS = {
    "lstm": _Kind("LSTM", (0, 3, 1, 2), {}),
    "gru": _Kind("GRU", (1, 0, 2), {"linear_before_reset": 1}),
    "rnn_tanh": _Kind("RNN", (0,), {"activations": [b"Tanh"]}),
    "rnn_relu": _Kind("RNN", (0,), {"activations": [b"Relu"]}),
}


def has_projections(node: Any) -> bool:
    """Return whether a node is an LSTM whose hidden state is narrower than its cell state."""
    _, _, parameters, has_biases, *_ = node.args
    layers = int(node.args[4]) * (2 if node.args[7] else 1)
    return len(parameters) != (4 if has_biases else 2) * layers


def convert(kind: str, node: Any, importer: Any) -> Any:
    """Convert a recurrent operator, to its outputs and its last states."""
    x, states, parameters, has_biases, layers, _, _, both, batch_first = importer.retrieve_args(
        node
    )
    emit = importer.block_builder.emit
    states = list(states) if isinstance(states, list | tuple) else [states]
    directions = 2 if both else 1
    count = (4 if has_biases else 2) * directions
    if batch_first:
        x = emit(relax.op.permute_dims(x, [1, 0, 2]))
    last: list[list[Any]] = [[] for _ in states]
    for layer in range(layers):
        mine = parameters[count * layer : count * (layer + 1)]
        first = [_slice(emit, state, 0, layer * directions, directions) for state in states]
        outputs, *ended = _layer(importer.block_builder, kind, x, first, mine, directions)
        x = outputs
        for found, state in zip(last, ended, strict=True):
            found.append(state)
    if batch_first:
        x = emit(relax.op.permute_dims(x, [1, 0, 2]))
    ended = [each[0] if layers == 1 else emit(relax.op.concat(each, 0)) for each in last]
    return emit(relax.Tuple([x, *ended]))


def _layer(
    builder: Any,
    kind: str,
    x: Any,
    states: Sequence[Any],
    parameters: Sequence[Any],
    directions: int,
) -> list[Any]:
    """Emit one layer: from (steps, batch, inputs) to (steps, batch, directions * hidden)."""
    emit = builder.emit
    cell = KINDS[kind]
    each = len(parameters) // directions
    groups = [
        [
            _gates(emit, parameters[direction * each + number], cell.gates)
            for direction in range(directions)
        ]
        for number in range(each)
    ]
    weights, of_states = (_stacked(emit, group) for group in groups[:2])
    bias = None
    if each == 4:
        bias = emit(relax.op.concat([_stacked(emit, group) for group in groups[2:]], 1))
    attributes = dict(cell.attributes)
    attributes["direction"] = b"bidirectional" if directions == 2 else b"forward"
    if "activations" in attributes:
        attributes["activations"] = list(attributes["activations"]) * directions
    inputs = [x, weights, of_states, bias, None, *states, *[None] * (3 - len(states))]
    outputs, *ended = recurrent(cell.operator, builder, inputs, attributes)
    steps, _, batch, hidden = (int(extent) for extent in outputs.ty.shape)
    moved = emit(relax.op.permute_dims(outputs, [0, 2, 1, 3]))
    return [emit(relax.op.reshape(moved, [steps, batch, directions * hidden])), *ended]


def _gates(emit: Callable[[Any], Any], value: Any, order: Sequence[int]) -> Any:
    """Reorder the rows of a weight or bias to ONNX's order of gates."""
    hidden = int(value.ty.shape[0]) // len(order)
    if len(order) == 1:
        return value
    parts = [_slice(emit, value, 0, gate * hidden, hidden) for gate in order]
    return emit(relax.op.concat(parts, 0))


def _slice(emit: Callable[[Any], Any], value: Any, axis: int, start: int, length: int) -> Any:
    if start == 0 and int(value.ty.shape[axis]) == length:
        return value
    return emit(relax.op.strided_slice(value, [axis], [start], [start + length]))


def _stacked(emit: Callable[[Any], Any], values: Sequence[Any]) -> Any:
    return emit(relax.op.concat([emit(relax.op.expand_dims(value, 0)) for value in values], 0))

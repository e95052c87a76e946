# SPDX-License-Identifier: Apache-2.0
"""Unrolled recurrent networks: an LSTM and NASRNN."""

from typing import Any

from tvm import relax
from tvm.ir import IRModule

from .writing import Network, write


def lstm(steps: int = 16, width: int = 256) -> IRModule:
    """An LSTM whose steps share their weights, as an exporter unrolls it.

    "Long Short-Term Memory" (Hochreiter and Schmidhuber, 1997), with forget gates. Its output is
    the last state.
    """
    return _lstm(steps, width, by_hand=False)


def lstm_by_hand(steps: int = 16, width: int = 256) -> IRModule:
    """The same function as ``lstm``, with one matrix product for the inputs of all steps."""
    return _lstm(steps, width, by_hand=True)


def _lstm(steps: int, width: int, by_hand: bool) -> IRModule:
    def body(net: Network, x: Any) -> Any:
        first = net.const(net.normal(width, 4 * width, fan_in=width))
        second = net.const(net.normal(width, 4 * width, fan_in=width))
        bias = net.const(net.normal(4 * width, fan_in=4))
        inputs = net.add(net.emit(relax.op.matmul(x, first)), bias) if by_hand else x
        hidden: Any = None
        cell: Any = None
        for step in range(steps):
            gates = _cut(net, inputs, 0, step, 1)
            if not by_hand:
                gates = net.add(net.emit(relax.op.matmul(gates, first)), bias)
            if step:
                gates = net.add(gates, net.emit(relax.op.matmul(hidden, second)))
            hidden, cell = _cell(net, gates, cell, width)
        return hidden

    return write(body, (steps, width))


def _cut(net: Network, x: Any, axis: int, index: int, size: int) -> Any:
    begin, end = index * size, (index + 1) * size
    return net.emit(relax.op.strided_slice(x, axes=[axis], begin=[begin], end=[end]))


def _cell(net: Network, gates: Any, cell: Any, width: int) -> tuple[Any, Any]:
    op, emit = relax.op, net.emit
    add, forget, new, show = (_cut(net, gates, 1, index, width) for index in range(4))
    added = emit(op.multiply(emit(op.sigmoid(add)), emit(op.tanh(new))))
    if cell is not None:
        added = net.add(added, emit(op.multiply(emit(op.sigmoid(forget)), cell)))
    return emit(op.multiply(emit(op.sigmoid(show)), emit(op.tanh(added)))), added


def nasrnn(steps: int = 5, width: int = 512) -> IRModule:
    """NASRNN: a recurrent cell found by architecture search.

    "Neural Architecture Search with Reinforcement Learning" (Zoph and Le, ICLR 2017), with the
    sizes of "Equality Saturation for Tensor Graph Superoptimization" (Yang et al., MLSys 2021):
    each matrix product has its own weights.
    """

    def body(net: Network, state: Any, *inputs: Any) -> Any:
        for each in inputs:
            state = _nas_cell(net, state, each, width)
        return state

    return write(body, *[(1, width)] * (steps + 1))


def _nas_cell(net: Network, state: Any, x: Any, width: int) -> Any:
    op, emit = relax.op, net.emit
    sums = [
        net.add(net.dense(x, width, bias=False), net.dense(state, width, bias=False))
        for _ in range(8)
    ]
    relu, sigmoid, tanh = op.nn.relu, op.sigmoid, op.tanh
    pairs = [
        (op.add, relu(sums[0]), sigmoid(sums[3])),
        (op.add, sigmoid(sums[1]), tanh(sums[2])),
        (op.multiply, sigmoid(sums[4]), tanh(sums[5])),
        (op.multiply, sigmoid(sums[6]), relu(sums[7])),
    ]
    parts = [emit(join(emit(one), emit(other))) for join, one, other in pairs]
    left = emit(op.add(emit(sigmoid(parts[1])), emit(tanh(parts[2]))))
    right = emit(op.multiply(emit(tanh(parts[0])), emit(tanh(parts[3]))))
    return emit(tanh(emit(op.multiply(emit(tanh(left)), emit(tanh(right))))))

# SPDX-License-Identifier: Apache-2.0
"""Converters for ONNX's ``RNN``, ``GRU`` and ``LSTM``."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

import tvm
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from ......model.scheduled import emit_scheduled
from ...operands import UnsupportedNode, shape_of
from .activations import Function, activation_function
from .cells import GATES, Cell, Kind
from .kernel import recurrence
from .layer import WIDTH, Layer, Operands, Packer

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}


class _Recurrent(OnnxOpConverter):  # type: ignore[misc, unused-ignore]
    """Base class of the converters of ``RNN``, ``GRU`` and ``LSTM``."""

    kind: ClassVar[Kind]
    rounds_states: ClassVar[bool] = False

    @classmethod
    def _impl_v1(cls, bb: Any, inputs: Sequence[Any], attr: dict[str, Any], params: Any) -> Any:
        x, recurrent = inputs[0], inputs[2]
        bias, lengths, state = inputs[3], inputs[4], inputs[5]
        memory, peephole = (inputs[6], inputs[7]) if cls.kind == "LSTM" else (None, None)
        if attr.get("layout", 0):
            x = bb.emit(relax.op.permute_dims(x, [1, 0, 2]))
            state, memory = (_swapped(bb, each) for each in (state, memory))
        dtype = str(x.ty.dtype)
        layer = _layer(x, recurrent, attr)
        pack = Packer(bb, layer, GATES[cls.kind])
        cell = replace(_cell(cls.kind, layer.directions, attr), rounds_states=cls.rounds_states)
        operands = Operands(
            products=None,
            weights=None,
            state=pack.state(state, dtype),
            memory=pack.state(memory, dtype) if cls.kind == "LSTM" else None,
            lengths=_lengths(bb, lengths, layer),
            peephole=None if peephole is None else pack.by_tile(peephole, 3),
        )
        added = None if bias is None else _split_bias(bb, pack, bias, cell, operands)
        rows = bb.emit(relax.op.reshape(x, [layer.steps * layer.batch, shape_of(x)[2]]))
        product = bb.emit(cls._multiply(bb, pack, rows, inputs, operands))
        if added is not None:
            product = bb.emit(relax.op.add(product, added))
        shape = [layer.steps, layer.batch, layer.directions, layer.tiles, cell.gates, WIDTH]
        operands.products = bb.emit(relax.op.reshape(product, shape))
        names = operands.present()
        found = emit_scheduled(
            bb,
            lambda *tensors: recurrence(layer, cell, names, *tensors),
            [getattr(operands, name) for name in names],
            cls.kind.lower(),
        )
        results = [pack.unpacked(bb.emit(relax.TupleGetItem(found, n))) for n in range(2)]
        if cls.kind == "LSTM":
            results.append(pack.unpacked(bb.emit(relax.TupleGetItem(found, 2))))
        if attr.get("layout", 0):
            results[0] = bb.emit(relax.op.permute_dims(results[0], [2, 0, 1, 3]))
            results[1:] = [_swapped(bb, each) for each in results[1:]]
        return relax.Tuple(results)

    @classmethod
    def _multiply(
        cls, bb: Any, pack: Packer, rows: Any, inputs: Sequence[Any], operands: Operands
    ) -> Any:
        """Multiply the inputs of all steps with the weights of all gates and directions.

        The packed weights of the states are stored in ``operands``.
        """
        operands.weights = pack.state_weights(inputs[2])
        return relax.op.matmul(rows, pack.input_weights(inputs[1]))


class Rnn(_Recurrent):
    """Converts an ONNX ``RNN``."""

    kind = "RNN"


class Gru(_Recurrent):
    """Converts an ONNX ``GRU``."""

    kind = "GRU"


class Lstm(_Recurrent):
    """Converts an ONNX ``LSTM``."""

    kind = "LSTM"


def _swapped(bb: Any, value: Any) -> Any:
    """A state with its first two axes swapped."""
    return None if value is None else bb.emit(relax.op.permute_dims(value, [1, 0, 2]))


def _layer(x: Any, recurrent: Any, attr: dict[str, Any]) -> Layer:
    name = attr.get("direction", b"forward").decode().lower()
    if name not in _DIRECTIONS:
        raise UnsupportedNode(f"its direction is {name!r}: expected one of {[*_DIRECTIONS]}")
    steps, batch, _ = shape_of(x)
    hidden = min(shape_of(recurrent)[1:])  # ``DynamicQuantizeLSTM`` swaps these axes.
    return Layer(steps, batch, hidden, _DIRECTIONS[name])


def _cell(kind: Kind, directions: int, attr: dict[str, Any]) -> Cell:
    count = len(_DEFAULTS[kind])
    names = [name.decode() for name in attr.get("activations", ())]
    names = names or list(_DEFAULTS[kind]) * directions
    if len(names) != count * directions:
        raise UnsupportedNode(f"it has {len(names)} activations: expected {count * directions}")
    functions = _functions(names, attr)
    groups = tuple(functions[count * number : count * (number + 1)] for number in range(directions))
    clip = float(attr.get("clip", 0.0))
    return Cell(
        kind,
        groups,
        clip=clip or None,
        reset_after=kind == "GRU" and bool(attr.get("linear_before_reset", 0)),
        input_forget=kind == "LSTM" and bool(attr.get("input_forget", 0)),
    )


_TAKES_ALPHA = (*("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"),)
_TAKES_BETA = ("affine", "scaledtanh", "hardsigmoid")


def _functions(names: Sequence[str], attr: dict[str, Any]) -> tuple[Function, ...]:
    """The activations. The node lists constants only for activations that take them."""
    alphas, betas = (list(attr.get(f"activation_{each}", ())) for each in ("alpha", "beta"))
    found = []
    for name in names:
        alpha = alphas.pop(0) if alphas and name.lower() in _TAKES_ALPHA else None
        beta = betas.pop(0) if betas and name.lower() in _TAKES_BETA else None
        try:
            found.append(activation_function(name, alpha, beta))
        except ValueError as error:
            raise UnsupportedNode(f"its {error}") from error
    return tuple(found)


def _lengths(bb: Any, lengths: Any, layer: Layer) -> Any:
    """The lengths of the sequences, or None if all are as long as the input."""
    if lengths is None:
        return None
    if isinstance(lengths, tvm.ir.GenericConst):
        values = lengths.value.numpy()
        if np.all(values == layer.steps):
            return None
    return lengths


def _split_bias(bb: Any, pack: Packer, bias: Any, cell: Cell, operands: Operands) -> Any:
    """The biases that are added to the products of the inputs: one row for all gates.

    A GRU with ``reset_after`` keeps the candidate's state bias separate, in ``operands``.
    """
    size = shape_of(bias)[1] // 2
    of_input = bb.emit(relax.op.strided_slice(bias, [1], [0], [size]))
    of_state = bb.emit(relax.op.strided_slice(bias, [1], [size], [2 * size]))
    if cell.reset_after:
        hidden = size // 3
        last = bb.emit(relax.op.strided_slice(of_state, [1], [2 * hidden], [size]))
        tiled = pack.by_tile(last, 1)
        operands.bias = bb.emit(relax.op.squeeze(tiled, [2]))
        first = bb.emit(relax.op.strided_slice(of_state, [1], [0], [2 * hidden]))
        none = bb.emit(relax.op.zeros_like(last))
        of_state = bb.emit(relax.op.concat([first, none], axis=1))
    total = pack.by_tile(bb.emit(relax.op.add(of_input, of_state)), cell.gates)
    return bb.emit(relax.op.reshape(total, [1, -1]))

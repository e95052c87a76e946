# SPDX-License-Identifier: Apache-2.0
"""Converters for ONNX's ``RNN``, ``GRU`` and ``LSTM``, and for an ``LSTM`` of bytes."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax import op
from tvm.target import Target
from tvm.target.codegen import target_has_features

from ......model.scheduled import emit_scheduled
from ...folding import as_array
from ...operands import (
    Attributes,
    UnsupportedNode,
    constant_input,
    converts,
    fields,
    part,
    parts,
    shape_of,
)
from ..contrib import DOMAIN as CONTRIB
from ..quantized import dequantize_linear, dynamic_quantize_linear, mat_mul_integer
from .cells import GATES, WIDTH, Cell, Function, Kind, Layer, Operands, Packer, activation_function
from .kernel import recurrence

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}


def _multiply(bb: Any, pack: Packer, rows: Any, inputs: Sequence[Any], operands: Operands) -> Any:
    """Multiply the inputs of all steps with the weights of all gates and directions.

    The packed weights of the states are stored in ``operands``.
    """
    operands.weights = pack.state_weights(inputs[2])
    return op.matmul(rows, pack.input_weights(inputs[1]))


def recurrent(
    kind: Kind,
    bb: Any,
    inputs: Sequence[Any],
    attr: Attributes,
    multiply: Callable[..., Any] = _multiply,
    rounds_states: bool = False,
) -> Any:
    """Convert a recurrent layer, with the inputs and attributes of ONNX's operator."""
    is_lstm, is_batch_first = kind == "LSTM", attr.get("layout", 0)
    x, weights, bias, lengths, state = (inputs[n] for n in (0, 2, 3, 4, 5))
    memory, peephole = (inputs[6], inputs[7]) if is_lstm else (None, None)
    if is_batch_first:
        x, state, memory = (_swapped(bb, each) for each in (x, state, memory))
    dtype = str(x.ty.dtype)
    layer = _layer(x, weights, attr)
    pack = Packer(bb, layer, GATES[kind])
    cell = _cell(kind, layer.directions, attr, rounds_states)
    operands = Operands(
        products=None,
        weights=None,
        state=pack.state(state, dtype),
        memory=pack.state(memory, dtype) if is_lstm else None,
        lengths=_lengths(lengths, layer),
        peephole=None if peephole is None else pack.by_tile(peephole, 3),
    )
    added = None if bias is None else _split_bias(bb, pack, bias, cell, operands)
    rows = bb.emit(op.reshape(x, [layer.steps * layer.batch, shape_of(x)[2]]))
    product = bb.emit(multiply(bb, pack, rows, inputs, operands))
    if added is not None:
        product = bb.emit(product + added)
    shape = [layer.steps, layer.batch, layer.directions, layer.tiles, cell.gates, WIDTH]
    operands.products = bb.emit(op.reshape(product, shape))
    names = operands.present()
    found = emit_scheduled(
        bb,
        lambda *tensors: recurrence(layer, cell, names, *tensors),
        [getattr(operands, name) for name in names],
        kind.lower(),
    )
    results = [pack.unpacked(each) for each in fields(bb, found, 3 if is_lstm else 2)]
    if is_batch_first:
        results[0] = bb.emit(op.permute_dims(results[0], [2, 0, 1, 3]))
        results[1:] = [_swapped(bb, each) for each in results[1:]]
    return relax.Tuple(results)


converts("RNN")(partial(recurrent, "RNN"))
converts("GRU")(partial(recurrent, "GRU"))
converts("LSTM")(partial(recurrent, "LSTM"))


def _swapped(bb: Any, value: Any) -> Any:
    """A value, if there is one, with its first two axes swapped."""
    return None if value is None else bb.emit(op.permute_dims(value, [1, 0, 2]))


def _layer(x: Any, recurrent: Any, attr: Attributes) -> Layer:
    name = attr.get("direction", b"forward").decode().lower()
    if name not in _DIRECTIONS:
        raise UnsupportedNode(f"its direction is {name!r}: expected one of {[*_DIRECTIONS]}")
    steps, batch, _ = shape_of(x)
    hidden = min(shape_of(recurrent)[1:])  # ``DynamicQuantizeLSTM`` swaps these axes.
    return Layer(steps, batch, hidden, _DIRECTIONS[name])


def _cell(kind: Kind, directions: int, attr: Attributes, rounds_states: bool) -> Cell:
    count = len(_DEFAULTS[kind])
    names = [name.decode() for name in attr.get("activations", ())]
    names = names or list(_DEFAULTS[kind]) * directions
    if len(names) != count * directions:
        raise UnsupportedNode(f"it has {len(names)} activations: expected {count * directions}")
    functions = _functions(names, attr)
    return Cell(
        kind,
        tuple(functions[count * n : count * (n + 1)] for n in range(directions)),
        clip=float(attr.get("clip", 0.0)) or None,
        reset_after=kind == "GRU" and bool(attr.get("linear_before_reset", 0)),
        input_forget=kind == "LSTM" and bool(attr.get("input_forget", 0)),
        rounds_states=rounds_states,
    )


_TAKES_ALPHA = (*("affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"),)
_TAKES_BETA = ("affine", "scaledtanh", "hardsigmoid")


def _functions(names: Sequence[str], attr: Attributes) -> tuple[Function, ...]:
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


def _lengths(lengths: Any, layer: Layer) -> Any:
    """The lengths of the sequences, or None if all are as long as the input."""
    values = None if lengths is None else as_array(lengths)
    return None if values is not None and np.all(values == layer.steps) else lengths


def _split_bias(bb: Any, pack: Packer, bias: Any, cell: Cell, operands: Operands) -> Any:
    """The biases that are added to the products of the inputs: one row for all gates.

    A GRU with ``reset_after`` keeps the candidate's state bias separate, in ``operands``.
    """
    size = shape_of(bias)[1] // 2
    of_input, of_state = parts(bb, bias, 1, [size, size])
    if cell.reset_after:
        most = size // 3 * 2
        last = bb.emit(part(of_state, 1, most, size))
        operands.bias = bb.emit(op.squeeze(pack.by_tile(last, 1), [2]))
        of_state = bb.emit(op.concat([part(of_state, 1, 0, most), op.zeros_like(last)], axis=1))
    total = pack.by_tile(bb.emit(of_input + of_state), cell.gates)
    return bb.emit(op.reshape(total, [1, -1]))


Array = np.ndarray[Any, Any]

_TOGETHER = 4
"""Number of bytes in a word."""


def _multiply_bytes(
    bb: Any, pack: Packer, rows: Any, inputs: Sequence[Any], operands: Operands
) -> Any:
    """Multiply bytes with VNNI.

    Without VNNI, or if weights minus their zero points need more than eight bits, the products are
    computed in float32 from dequantized numbers.
    """
    data, scale, point = map(bb.emit, dynamic_quantize_linear(bb, [rows], {}).fields)
    weights, scales = zip(*(_of_directions(inputs, *each) for each in _WEIGHTS), strict=True)
    if not _has_dot() or any(np.abs(each + 0.5).max() > 128 for each in weights):
        numbers = [
            (each * factor[..., None]).astype("float32")
            for each, factor in zip(weights, scales, strict=True)
        ]
        operands.weights = pack.state_weights(relax.const(numbers[1]))
        rounded = bb.emit(dequantize_linear(bb, [data, scale, point], {}))
        return op.matmul(rounded, pack.input_weights(relax.const(numbers[0])))
    operands.weights = relax.const(_words(weights[1]))
    operands.scales = relax.const(_by_tile(scales[1]))
    operands.sums = relax.const(_by_tile(weights[1].sum(-1, dtype="int32")))
    columns = pack.input_weights(relax.const(weights[0].astype("int8")))
    sums = bb.emit(mat_mul_integer(bb, [data, columns, point, None], {}))
    factors = relax.const(_by_tile(scales[0]).reshape(1, -1))
    return sums.astype("float32") * (scale * factors)


converts("DynamicQuantizeLSTM", domain=CONTRIB)(
    partial(recurrent, "LSTM", multiply=_multiply_bytes, rounds_states=True)
)


def _has_dot() -> bool:
    target = Target.current(allow_none=True)
    if target is None or target.kind.name != "llvm":
        return False
    return bool(target_has_features(["avx512vnni", "avx512f"], target))


_WEIGHTS = ((1, "W", 8), (2, "R", 10))
"""The indices of the inputs with byte weights, the names of these inputs, and the indices of the
inputs with scales. Each input with zero points follows its scales."""


def _of_directions(inputs: Sequence[Any], number: int, name: str, first: int) -> list[Array]:
    """Weights minus zero points, (directions, 4 * hidden, inputs) in int32, and their scales.

    The scales are of shape (directions, 4 * hidden). The node's bytes have the last two axes
    swapped.
    """
    found = [
        constant_input(inputs, n, each)
        for n, each in ((number, name), (first, f"{name}_scale"), (first + 1, f"{name}_zero_point"))
    ]
    assert all(each is not None for each in found)  # All are required.
    data, scales, points = (np.asarray(each) for each in found)
    count, _, columns = data.shape
    shifted = data.astype("int32") - points.reshape(count, 1, -1).astype("int32")
    spread = np.broadcast_to(scales.reshape(count, -1), (count, columns)).astype("float32")
    return [np.ascontiguousarray(np.swapaxes(shifted, 1, 2)), spread]


def _by_tile(values: Array) -> Array:
    """Rearrange (directions, gates * hidden, ...) to (directions, tiles, gates, WIDTH, ...)."""
    count, rows, *rest = values.shape
    gates = GATES["LSTM"]
    values = values.reshape(count, gates, rows // gates, *rest)
    extra = -values.shape[2] % WIDTH
    values = np.pad(values, [(0, extra if axis == 2 else 0) for axis in range(values.ndim)])
    values = values.reshape(count, gates, -1, WIDTH, *rest)
    return np.ascontiguousarray(np.swapaxes(values, 1, 2))


def _words(weights: Array) -> Array:
    """State weights as words of four bytes, in the order in which the kernel reads them."""
    tiled = _by_tile(weights.astype("int8"))
    extra = -tiled.shape[-1] % WIDTH
    tiled = np.pad(tiled, [(0, 0)] * 4 + [(0, extra)])
    fours = tiled.reshape(*tiled.shape[:-1], -1, _TOGETHER)
    ordered = np.ascontiguousarray(fours.transpose(0, 1, 4, 2, 3, 5))
    return ordered.view("int32")[..., 0]

# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers: their cells, extents and operands.

ONNX's operators ``RNN``, ``GRU`` and ``LSTM`` define the equations and the order of the gates. LLVM
calls the C library for each element of ``exp`` and ``tanh``. The polynomials below, which
vectorize, are from TOPI's ``fast_exp`` and ``fast_tanh`` (``topi/elemwise.h``; from Cephes and
Eigen). Their relative errors are within 1e-6.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tvm import relax, tirx
from tvm.relax import op

from ...operands import part, shape_of

Function = Callable[[Any], Any]

_TANH_BOUND = 7.90531110763549805
_TANH_ODD = (
    4.89352455891786e-03,
    6.37261928875436e-04,
    1.48572235717979e-05,
    5.12229709037114e-08,
    -8.60467152213735e-11,
    2.00018790482477e-13,
    -2.76076847742355e-16,
)
_EXP_BOUND = 87.0
_EXP = (
    5.0000001201e-1,
    1.6666665459e-1,
    4.1665795894e-2,
    8.3334519073e-3,
    1.3981999507e-3,
    1.9875691500e-4,
)
_TANH_EVEN = (
    4.89352518554385e-03,
    2.26843463243900e-03,
    1.18534705686654e-04,
    1.19825839466702e-06,
)


@functools.cache
def activation_function(name: str, alpha: float | None, beta: float | None) -> Function:
    """Return an activation as a function of an expression.

    ``name``: ONNX's name, such as "Sigmoid", in upper or lower case. ``alpha``, ``beta``: the
    constants of the activation. None for ONNX's default. Equal arguments return the same function.
    Raises ``ValueError``, which names the activation, if ONNX has no such activation.
    """
    known = _KNOWN.get(name.lower())
    if known is None:
        raise ValueError(f"activation {name!r}: expected one of {', '.join(_KNOWN)}")
    make, *defaults = known
    constants = [
        default if given is None else given
        for given, default in zip((alpha, beta), defaults, strict=True)
    ]
    return lambda x: make(x, *(tirx.const(each, x.ty.dtype) for each in constants))


def _polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    value = tirx.const(coefficients[-1], x.ty.dtype)
    for coefficient in reversed(coefficients[:-1]):
        value = value * x + tirx.const(coefficient, x.ty.dtype)
    return value


def _tanh(x: Any, _alpha: Any = None, _beta: Any = None) -> Any:
    if x.ty.dtype != "float32":
        return tirx.tanh(x)
    bound = tirx.const(_TANH_BOUND, x.ty.dtype)
    limited = tirx.max(-bound, tirx.min(bound, x))
    square = limited * limited
    quotient = limited * _polynomial(square, _TANH_ODD) / _polynomial(square, _TANH_EVEN)
    # The bounds would turn NaN into a number.
    return tirx.Select(x == x, quotient, x)


def _exp(x: Any) -> Any:
    """Cephes' ``expf``: a power of two times a polynomial of the remaining exponent."""
    if x.ty.dtype != "float32":
        return tirx.exp(x)
    kind = x.ty.dtype
    limited = tirx.max(tirx.const(-_EXP_BOUND, kind), tirx.min(tirx.const(_EXP_BOUND, kind), x))
    power = tirx.floor(limited * tirx.const(1.44269504088896341, kind) + tirx.const(0.5, kind))
    rest = limited - power * tirx.const(0.693359375, kind)
    rest = rest - power * tirx.const(-2.12194440e-4, kind)
    value = _polynomial(rest, _EXP) * rest * rest + rest + _one(x)
    bits = (power.astype("int32") + tirx.const(127, "int32")) << tirx.const(23, "int32")
    return tirx.reinterpret(kind, bits) * value


def _sigmoid(x: Any, _alpha: Any = None, _beta: Any = None) -> Any:
    found = _one(x) / (_one(x) + _exp(-x))
    return tirx.Select(x == x, found, x)


def _zero(x: Any) -> Any:
    return tirx.const(0.0, x.ty.dtype)


def _one(x: Any) -> Any:
    return tirx.const(1.0, x.ty.dtype)


def _hard_sigmoid(x: Any, alpha: Any, beta: Any) -> Any:
    return tirx.max(_zero(x), tirx.min(_one(x), alpha * x + beta))


def _elu(x: Any, alpha: Any, _beta: Any) -> Any:
    return tirx.Select(x >= _zero(x), x, alpha * (_exp(x) - _one(x)))


def _softplus(x: Any, _alpha: Any, _beta: Any) -> Any:
    return tirx.max(x, _zero(x)) + tirx.log(_one(x) + tirx.exp(-tirx.abs(x)))


_KNOWN: dict[str, tuple[Callable[[Any, Any, Any], Any], float, float]] = {
    "sigmoid": (_sigmoid, 0.0, 0.0),
    "tanh": (_tanh, 0.0, 0.0),
    "relu": (lambda x, _alpha, _beta: tirx.max(x, _zero(x)), 0.0, 0.0),
    "affine": (lambda x, alpha, beta: alpha * x + beta, 1.0, 0.0),
    "leakyrelu": (lambda x, a, _beta: tirx.Select(x >= _zero(x), x, a * x), 0.01, 0.0),
    "thresholdedrelu": (lambda x, a, _beta: tirx.Select(x > a, x, _zero(x)), 1.0, 0.0),
    "scaledtanh": (lambda x, alpha, beta: alpha * _tanh(beta * x), 1.0, 1.0),
    "hardsigmoid": (_hard_sigmoid, 0.2, 0.5),
    "elu": (_elu, 1.0, 0.0),
    "softsign": (lambda x, _alpha, _beta: x / (_one(x) + tirx.abs(x)), 0.0, 0.0),
    "softplus": (_softplus, 0.0, 0.0),
}


Kind = Literal["RNN", "GRU", "LSTM"]

GATES: dict[str, int] = {"RNN": 1, "GRU": 3, "LSTM": 4}
"""The number of gates of each cell: h for RNN; z, r, h for GRU; i, o, f, c for LSTM."""


@dataclass(frozen=True)
class Cell:
    """The properties of a kind of cell.

    - ``kind``: "RNN", "GRU" or "LSTM".
    - ``activations``: for each direction: f for RNN; f and g for GRU; f, g and h for LSTM.
    - ``clip``: the gates are clipped to [``-clip``, ``clip``] before their activations.
    - ``reset_after``: GRU only: whether the reset gate is applied to the product
      (``linear_before_reset``).
    - ``input_forget``: LSTM only: whether the forget gate is 1 minus the input gate.
    - ``rounds_states``: LSTM only: whether the product is of states rounded to bytes.
    """

    kind: Kind
    activations: tuple[tuple[Function, ...], ...]
    clip: float | None = None
    reset_after: bool = False
    input_forget: bool = False
    rounds_states: bool = False

    @property
    def gates(self) -> int:
        """The number of gates."""
        return GATES[self.kind]

    @property
    def is_two_phase(self) -> bool:
        """True if the candidate's product needs the reset gates of all units."""
        return self.kind == "GRU" and not self.reset_after

    def limited(self, gate: Any) -> Any:
        """Clip a gate."""
        if self.clip is None:
            return gate
        bound = tirx.const(self.clip, gate.ty.dtype)
        return tirx.max(-bound, tirx.min(bound, gate))

    def rnn(self, direction: int, gate: Any) -> Any:
        """The new state of a plain cell."""
        (f,) = self.activations[direction]
        return f(self.limited(gate))

    def gru_gate(self, direction: int, gate: Any) -> Any:
        """The update gate or the reset gate."""
        return self.activations[direction][0](self.limited(gate))

    def gru_state(self, direction: int, update: Any, candidate: Any, old: Any) -> Any:
        """The new state of a GRU, from its update gate and its candidate before the activation."""
        g = self.activations[direction][1]
        one = tirx.const(1.0, old.ty.dtype)
        return (one - update) * g(self.limited(candidate)) + update * old

    def lstm(
        self, direction: int, gates: Sequence[Any], old: Any, peephole: Sequence[Any] | None
    ) -> tuple[Any, Callable[[Any], Any]]:
        """The new cell state of an LSTM, and the hidden state as a function of the cell state.

        ``gates``: the sums i, o, f and c. ``peephole``: the weights of the cell state in i, o and
        f.
        """
        f, g, h = self.activations[direction]
        enter, leave, forget, fresh = gates
        if peephole is not None:
            enter, forget = enter + peephole[0] * old, forget + peephole[2] * old
        entering = f(self.limited(enter))
        one = tirx.const(1.0, old.ty.dtype)
        kept = one - entering if self.input_forget else f(self.limited(forget))
        state = kept * old + entering * g(self.limited(fresh))

        def hidden(state: Any) -> Any:
            gate = leave if peephole is None else leave + peephole[1] * state
            return f(self.limited(gate)) * h(state)

        return state, hidden


WIDTH = 16
"""Number of hidden units in a tile: one vector of AVX-512, or two of AVX2."""


@dataclass(frozen=True)
class Layer:
    """The extents of a recurrent layer.

    ``steps``, ``batch``, ``hidden``: numbers of steps, sequences in the batch, and hidden units.
    ``reverse``: for each direction, whether it goes from the last step to the first.
    """

    steps: int
    batch: int
    hidden: int
    reverse: tuple[bool, ...]

    @property
    def directions(self) -> int:
        """Number of directions, one or two."""
        return len(self.reverse)

    @property
    def tiles(self) -> int:
        """Number of tiles of hidden units. The last tile may be padded."""
        return -(-self.hidden // WIDTH)

    @property
    def padded(self) -> int:
        """Number of hidden units, including the padding of the last tile."""
        return self.tiles * WIDTH


@dataclass
class Operands:
    """The operands of a kernel, as tensors or buffers.

    - ``products``: (steps, batch, directions, tiles, gates, WIDTH): inputs times weights, plus
      biases.
    - ``weights``: (directions, tiles, hidden, gates, WIDTH): the weights of the old state.
    - ``state``: (directions, batch, padded): the initial hidden state.
    - ``memory``: (directions, batch, padded): the initial cell state of an LSTM, or None.
    - ``lengths``: (batch,): int32, the steps of each sequence, or None if all have all steps.
    - ``bias``: (directions, tiles, WIDTH): the bias of a GRU's product before its reset, or None.
    - ``peephole``: (directions, tiles, 3, WIDTH): the peephole weights of an LSTM, or None.
    - ``scales``, ``sums``: (directions, tiles, gates, WIDTH): the scales and sums of byte weights,
      or None. Byte weights are words of four bytes: (directions, tiles, padded / 4, gates, WIDTH).
    """

    products: Any
    weights: Any
    state: Any
    memory: Any = None
    lengths: Any = None
    bias: Any = None
    peephole: Any = None
    scales: Any = None
    sums: Any = None

    def present(self) -> list[str]:
        """The names of the operands that are not None."""
        return [name for name, value in vars(self).items() if value is not None]


def padded(value: Any, layer: Layer, axis: int) -> Any:
    """Pad the hidden units along an axis with zeros to whole tiles."""
    extra = layer.padded - layer.hidden
    if not extra:
        return value
    widths = [0] * (2 * value.ty.ndim)
    widths[2 * axis + 1] = extra
    return op.nn.pad(value, widths)


class Packer:
    """Packs weights and states of a layer in the order in which its kernel reads them.

    It emits Relax operators, which are folded if the weights are constants. ``builder``: the block
    builder. ``gates``: number of gates of the cell.
    """

    def __init__(self, builder: relax.BlockBuilder, layer: Layer, gates: int) -> None:
        self._builder = builder
        self._layer = layer
        self._gates = gates

    def tiled(self, value: Any, groups: int) -> Any:
        """Split (directions, groups * hidden, ...) to (directions, groups, tiles, WIDTH, ...)."""
        layer, rest = self._layer, shape_of(value)[2:]
        value = op.reshape(value, [layer.directions, groups, layer.hidden, *rest])
        value = padded(self._builder.emit(value), layer, 2)
        return op.reshape(value, [layer.directions, groups, layer.tiles, WIDTH, *rest])

    def _ordered(self, value: Any, groups: int, order: list[int]) -> Any:
        return self._builder.emit(op.permute_dims(self.tiled(value, groups), order))

    def input_weights(self, weights: Any) -> Any:
        """Pack (directions, gates * hidden, input) into a matrix with a column for each gate."""
        packed = self._ordered(weights, self._gates, [4, 0, 2, 1, 3])
        return self._builder.emit(op.reshape(packed, [shape_of(weights)[2], -1]))

    def state_weights(self, weights: Any) -> Any:
        """Pack (directions, gates * hidden, hidden) in the order of the kernel."""
        return self._ordered(weights, self._gates, [0, 2, 4, 1, 3])

    def by_tile(self, value: Any, groups: int) -> Any:
        """Rearrange (directions, groups * hidden) to (directions, tiles, groups, WIDTH)."""
        return self._ordered(value, groups, [0, 2, 1, 3])

    def state(self, value: Any | None, dtype: str) -> Any:
        """Pad an initial state (directions, batch, hidden). None gives zeros."""
        layer = self._layer
        if value is not None:
            return self._builder.emit(padded(value, layer, 2))
        shape = relax.ShapeExpr([layer.directions, layer.batch, layer.padded])
        return self._builder.emit(op.zeros(shape, dtype))

    def unpacked(self, value: Any) -> Any:
        """Remove the padding from the hidden units of a result, its last axis."""
        layer = self._layer
        if layer.padded == layer.hidden:
            return value
        return self._builder.emit(part(value, value.ty.ndim - 1, 0, layer.hidden))

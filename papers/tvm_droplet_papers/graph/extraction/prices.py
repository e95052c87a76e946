# SPDX-License-Identifier: Apache-2.0
"""Kernel prices from rooflines. Imports no TVM."""

from dataclasses import dataclass, field
from typing import Protocol

from ..equality.egraph import EGraph
from ..equality.language import BINARY, ELEMENTWISE, LEAVES, Operator, Tensor, TupleType, Type
from .implementations import Implementation, Layout, conversion, moves_nothing, stored

_BYTES = {"float64": 8, "int64": 8, "uint64": 8, "float32": 4, "int32": 4, "uint32": 4}
_BYTES |= {"float16": 2, "bfloat16": 2, "int16": 2, "uint16": 2}

FREE = frozenset({"same", "reshape", "expand_dims", "squeeze", "get", "tuple", "dropout", *LEAVES})
"""Operators that neither move nor compute data."""

LAYOUT_SPEEDS = {("conv2d", "NHWC"): 1.3, ("grouped", "NHWC"): 0.75, ("depthwise", "NHWC"): 2.0}
"""The speedups of tuned kernels over NCHW kernels with equal trials, for layouts where it matters.
They were measured for 3x3, for 32 groups of 4, and for depthwise 3x3 on one Zen 4 core, and apply
until kernels are timed."""


FLOPS = {"sigmoid": 20, "silu": 20, "exp": 20, "tanh": 30, "erf": 30, "gelu": 35}
"""The operations per element of operators that need more than one. The count is that of their
polynomial approximations (``model/kernels/vector_math.py``)."""


class Rates(Protocol):
    """The rates of a machine; ``session.roofline.MachineRates`` implements it."""

    @property
    def flops_per_sec(self) -> float:
        """The peak rate of float32 operations."""

    def bandwidth(self, working_set: float) -> float:
        """The bandwidth in bytes per second of a kernel that touches ``working_set`` bytes."""


class Price(Protocol):
    """Prices kernels and layout conversions of an e-graph, in seconds."""

    def kernel(self, graph: EGraph, number: int, way: Implementation) -> float:
        """The price of an implementation of an e-node.

        Parameters
        ----------
        graph : EGraph
            The e-graph.
        number : int
            The class that the implementation computes.
        way : Implementation
            The implementation.
        """

    def conversion(self, type_: Tensor, source: Layout, target: Layout) -> float:
        """The price of converting a tensor from one layout to another."""


@dataclass(frozen=True)
class RooflinePrice:
    """Roofline prices: the larger of compute time and memory time, plus a constant per kernel.

    An elementwise operator is fused into the kernel before it. It costs its arithmetic, the reading
    of its other operands, and a small constant. The constant exists because TVM does not fuse
    everything, and because the simplest of equally priced graphs should win.

    Parameters
    ----------
    rates : Rates
        The machine.
    call_secs : float
        Seconds of a kernel call.
    slice_secs, elementwise_secs : float
        Additional seconds of a slice and of an elementwise call.
    layout_speeds : dict[tuple[str, str], float]
        The speedup of each (kind of convolution, layout) over NCHW.
    """

    rates: Rates
    call_secs: float = 1e-6
    slice_secs: float = 1e-7
    elementwise_secs: float = 1e-8
    layout_speeds: dict[tuple[str, str], float] = field(default_factory=LAYOUT_SPEEDS.copy)

    def kernel(self, graph: EGraph, number: int, way: Implementation) -> float:
        """The price of an implementation of an e-node."""
        op = way.operator
        if op.name in FREE:
            return 0.0
        pairs = zip(way.node.children, way.operands, strict=True)
        operands = [_stored(graph.facts(child).type, layout) for child, layout in pairs]
        result = _stored(graph.facts(number).type, way.result)
        if op.name in ELEMENTWISE:
            return self._epilogue(graph, way, operands, result)
        moved = bytes_of(result) + sum(bytes_of(operand) for operand in operands)
        if op.name == "strided_slice":
            # The consumer reads the slice in its own kernel unless it is a convolution or product.
            return self._bound(0.0, 2 * bytes_of(result)) + self.slice_secs
        bound = self._bound(flops_of(op, operands, result), moved)
        speed = self.layout_speeds.get((_kind(op, operands), _layout(op)), 1.0)
        return bound / speed + self.call_secs

    def conversion(self, type_: Tensor, source: Layout, target: Layout) -> float:
        """The price of converting a tensor from one layout to another."""
        if moves_nothing(stored(type_, source).shape, conversion(source, target)):
            return 0.0
        return self._bound(0.0, 2 * bytes_of(type_)) + self.call_secs

    def _bound(self, flops: float, moved: float) -> float:
        return max(flops / self.rates.flops_per_sec, moved / self.rates.bandwidth(moved))

    def _epilogue(
        self, graph: EGraph, way: Implementation, operands: list[Type], result: Type
    ) -> float:
        """Price the arithmetic and the reading of all non-weight operands except the largest."""
        read = sorted(
            bytes_of(type_)
            for child, type_ in zip(way.node.children, operands)
            if not graph.is_weight(child)
        )[:-1]
        assert isinstance(result, Tensor)
        moved = sum(read)
        moving = moved / self.rates.bandwidth(moved)
        flops = result.size * FLOPS.get(way.operator.name, 1)
        return flops / self.rates.flops_per_sec + moving + self.elementwise_secs


def _stored(type_: Type, layout: Layout) -> Type:
    return stored(type_, layout) if isinstance(type_, Tensor) else type_


def bytes_of(type_: Type) -> float:
    """The bytes of a tensor, or of all tensors in a tuple."""
    if isinstance(type_, TupleType):
        return float(sum(bytes_of(each) for each in type_.fields))
    return float(type_.size * _BYTES.get(type_.dtype, 1))


def flops_of(op: Operator, operands: list[Type], result: Type) -> float:
    """The floating-point operations of a call; 0 for data movement and unknown operators."""
    first, out = operands[0] if operands else result, result
    if not isinstance(out, Tensor) or not isinstance(first, Tensor):
        return 0.0
    second = operands[1] if len(operands) > 1 else None
    if op.name == "conv2d" and isinstance(second, Tensor):
        outputs = second.shape[op.get("kernel_layout").index("O")]
        return float(2 * out.size * second.size // outputs)
    if op.name == "matmul":
        return 2.0 * out.size * float(first.shape[-1])
    if op.name == "einsum":
        return 2.0 * _einsum_size(op, operands)
    if op.name in ("max_pool2d", "avg_pool2d"):
        return float(out.size * op.get("pool_size")[0] * op.get("pool_size")[1])
    if op.name in ("mean", "sum", "softmax", "layer_norm", *BINARY):
        return float(first.size)
    return 0.0


def _einsum_size(op: Operator, operands: list[Type]) -> float:
    letters = op.get("subscripts").partition("->")[0].split(",")
    extents: dict[str, int] = {}
    for names, type_ in zip(letters, operands):
        assert isinstance(type_, Tensor)
        extents.update(zip(names, type_.shape))
    count = 1.0
    for extent in extents.values():
        count *= extent
    return count


def _kind(op: Operator, operands: list[Type]) -> str:
    if op.name != "conv2d" or op.get("groups") == 1:
        return op.name
    assert isinstance(operands[1], Tensor)
    return "depthwise" if operands[1].shape[op.get("kernel_layout").index("I")] == 1 else "grouped"


def _layout(op: Operator) -> str:
    return str(op.get("layout")) if op.name == "conv2d" else ""

# SPDX-License-Identifier: Apache-2.0
"""Convolutions and dense layers in bfloat16 with float32 sums."""

from typing import Any

import ml_dtypes
import numpy as np

import tvm
from tvm import relax
from tvm.ir import GenericConst, IRModule

from ..design_space.dot_products.dot_intrinsics import HALF
from .bindings import Bindings, Expr, Var, operator_name, relax_operators, values_of
from .layers import CONVOLUTIONS, Layer, convolution_like, layer_of
from .rewriting import Emit, binding_pass

_MARK = "tvm_droplet_ms.bfloat16"
"""The attribute of a function that computes in bfloat16."""

_DEPTH, _LANES = 2, 4
"""Number of products that one lane of an instruction adds up, and the least number of lanes; see
``dot_intrinsics.py``."""

_READ_ROUNDED = relax_operators("add subtract multiply sigmoid nn.relu nn.gelu nn.silu")
"""Other operators that may read a rounded input. Their kernels widen it, and they do not derive
indices or choices from it."""

_COLORS, _RANK = 3, 4
"""Number of channels of an image, and the rank of a batch of images."""

_KEEP_ORDER = ("relax.nn.max_pool2d",)
"""Operators that select one of their inputs, and so commute with rounding."""

_LEAST_PRODUCTS = 16
"""Number of products per output below which rounding the inputs costs more than it saves."""


def compute_in_bfloat16(*, pads_colors: bool = False) -> tvm.transform.Pass:
    """Make a pass that computes convolutions and dense layers in bfloat16.

    It rounds their inputs and constant weights to bfloat16, which has eight significant bits, and
    adds up the products in float32. An input is rounded once, where it is made. Residuals and
    activations read the rounded input, so that only this is stored. Grouped convolutions,
    convolutions whose channels are not innermost or whose number of channels is odd, and products
    of two activations other than attention (``fuse_attention``) stay in float32.

    ``pads_colors``: whether images of three channels get a fourth channel of zeros, which matrix
    tiles need. Run it on a prepared graph: no later pass moves weights.
    """

    def make_rewrite(bindings: Bindings) -> _Rounding:
        return _Rounding(bindings, pads_colors)

    def mark(function: relax.Function, _mod: Any, _context: Any) -> relax.Function:
        return function.with_attr(_MARK, True)

    passes = [
        binding_pass("RoundToBfloat16", make_rewrite, [*CONVOLUTIONS, "relax.matmul"]),
        relax.transform.function_pass(mark, opt_level=0, name="MarkBfloat16"),
    ]
    return tvm.transform.Sequential(passes, name="ComputeInBfloat16")


def computes_in_bfloat16(function: relax.Function) -> bool:
    """True if `compute_in_bfloat16` was run on a function: its attention may use bfloat16."""
    return bool((function.attrs or {}).get(_MARK, False))


class _Rounding:
    """The rewrites of one block."""

    def __init__(self, bindings: Bindings, pads_colors: bool) -> None:
        self._pads_colors = pads_colors
        self._values = bindings.values
        layers = [self._served_layer(value) for value in bindings.values.values()]
        inputs = {layer.data for layer in layers if layer is not None}
        # The block does not compute inputs of the model: rounding them for others saves nothing.
        self._made = {data for data in inputs if data in bindings.values}
        self._rounded: dict[Var, Var] = {}
        self._weights: dict[Expr, Expr] = {}

    def __call__(self, _var: Var, value: Expr, emit: Emit) -> Expr | None:
        """Return the layer in bfloat16, or another operator that reads rounded inputs."""
        layer = self._served_layer(value)
        if layer is not None:
            added = self._added_channels(layer)
            data, weight = self._round(layer.data, emit, added), self._half_of(value.args[1], layer)
            if operator_name(value) == "relax.matmul":
                return relax.op.matmul(data, weight, out_dtype="float32")
            return convolution_like(value, data, weight, out_dtype="float32")
        is_reader = operator_name(value) in _READ_ROUNDED
        if not is_reader or not any(map(self._is_made, value.args)):
            return None
        arguments = [self._widened(each, emit) for each in value.args]
        return relax.Call(value.op, arguments, value.attrs, value.ty_args)

    def _half_of(self, constant: Expr, layer: Layer) -> Expr:
        """Return the rounded weight of a layer. A weight that several layers share is cached."""
        if constant not in self._weights:
            widths = [(0, 0)] * layer.weight.ndim
            widths[layer.weight_input_axis] = (0, self._added_channels(layer))
            values = np.ascontiguousarray(np.pad(layer.weight, widths))
            tensor = tvm.runtime.tensor(values.astype(ml_dtypes.bfloat16))
            self._weights[constant] = relax.const(tensor, HALF)
        return self._weights[constant]

    def _round(self, data: Var, emit: Emit, added: int = 0) -> Var:
        if added:
            widths = [0] * (2 * len(data.ty.shape) - 1) + [added]
            return emit(relax.op.astype(emit(relax.op.nn.pad(data, widths)), HALF))
        if data not in self._rounded:
            made = self._values.get(data)
            if made is not None and operator_name(made) in _KEEP_ORDER:
                # Rounding is monotonic: the maximum of rounded numbers is the rounded maximum.
                source = emit(relax.op.astype(made.args[0], HALF))
                self._rounded[data] = emit(relax.Call(made.op, [source], made.attrs))
            else:
                self._rounded[data] = emit(relax.op.astype(data, HALF))
        return self._rounded[data]

    def _served_layer(self, value: Expr) -> Layer | None:
        layer = layer_of(value)
        is_served = layer is not None and _is_served(layer, self._added_channels(layer))
        return layer if is_served else None

    def _added_channels(self, layer: Layer) -> int:
        """Number of zero channels to add to an image, so that a row of pixels is a tile row."""
        inputs, rank = layer.weight.shape[layer.weight_input_axis], layer.weight.ndim
        is_image = inputs == _COLORS and rank == _RANK and layer.groups == 1
        return 1 if self._pads_colors and is_image else 0

    def _is_made(self, operand: Expr) -> bool:
        return isinstance(operand, relax.Var) and operand in self._made

    def _widened(self, operand: Expr, emit: Emit) -> Expr:
        """Return an operand, or its rounded value converted to float32.

        Each reader has its own conversion, which is fused into its kernel.
        """
        if not self._is_made(operand):
            return operand
        return emit(relax.op.astype(self._round(operand, emit), "float32"))


def is_half_layer(value: Expr) -> bool:
    """True for a convolution or a matrix product in bfloat16."""
    is_layer = operator_name(value) in (*CONVOLUTIONS, "relax.matmul")
    return is_layer and str(value.args[0].ty.dtype) == HALF


def served_note(mod: IRModule) -> str:
    """Report how many convolutions and dense layers of ``main`` are in bfloat16.

    Products of two activations are not counted.
    """
    layers = [
        value
        for value in values_of(mod["main"])
        if operator_name(value) in (*CONVOLUTIONS, "relax.matmul")
        and isinstance(value.args[1], GenericConst)
    ]
    count = sum(map(is_half_layer, layers))
    note = f"{count} of {len(layers)} convolutions and dense layers are of bfloat16"
    if count == len(layers):
        return note
    return (
        f"{note}; the others are quantized, of several groups or in three dimensions, or have odd "
        "inputs, few of them, or outputs that are no multiple of four"
    )


def _is_served(layer: Layer, added: int) -> bool:
    """True if the instruction can compute a layer: pairs of products are adjacent.

    ``added``: number of zero input channels that are added to the layer.
    """
    shape = layer.weight.shape
    outputs, inputs = shape[layer.weight_output_axis], shape[layer.weight_input_axis] + added
    products = layer.weight.size // outputs if outputs else 0
    is_innermost = layer.input_axis == len(layer.data.ty.shape) - 1
    return (
        layer.groups == 1
        and is_innermost
        and inputs % _DEPTH == 0
        and outputs > 0
        and outputs % _LANES == 0
        and products >= _LEAST_PRODUCTS
    )

# SPDX-License-Identifier: Apache-2.0
"""Convolutions and dense layers with constant weights: their axes and how to rebuild them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm import relax

from .bindings import (
    Expr,
    array_of,
    constant,
    is_float32,
    operator_name,
    relax_functions,
    static_shape,
)

CONVOLUTIONS = relax_functions("nn.conv1d nn.conv2d nn.conv3d")


def layouts_of(attrs: Any) -> tuple[str, str, str]:
    """Return the layouts of the data, the kernel and the output of a convolution."""
    return str(attrs.data_layout), str(attrs.kernel_layout), str(attrs.out_layout)


def convolution_like(call: relax.Call, data: Expr, weight: Expr, **changes: Any) -> relax.Call:
    """Make a convolution with other operands and the attributes of a call, except ``changes``."""
    names = ("strides", "padding", "dilation", "groups", "out_dtype")
    layouts = ("data_layout", "kernel_layout", "out_layout")
    attributes = {name: getattr(call.attrs, name) for name in (*names, *layouts)}
    return CONVOLUTIONS[operator_name(call)](data, weight, **{**attributes, **changes})


@dataclass(frozen=True)
class Layer:
    """A float32 convolution or dense layer with a constant weight.

    - ``weight``: a view of the weight.
    - ``input_axis``, ``output_axis``: channel axis of the input and of the output.
    - ``weight_input_axis``, ``weight_output_axis``: axes of the weight for the input channels of a
      group and for the output channels.
    - ``groups``: number of groups.
    - ``padded``: whether the input is padded with zeros.
    """

    call: relax.Call
    weight: "np.ndarray[Any, Any]"
    input_axis: int
    output_axis: int
    weight_input_axis: int
    weight_output_axis: int
    groups: int
    padded: bool

    @property
    def data(self) -> Expr:
        """The input."""
        return self.call.args[0]

    def rebuild(self, data: Expr, weight: "np.ndarray[Any, Any]") -> relax.Call:
        """Make the same layer with another input, and a copy of another weight."""
        return relax.Call(self.call.op, [data, constant(weight)], self.call.attrs)


def layer_of(value: Expr) -> Layer | None:
    """Return the layer that a bound value computes.

    None if the value is not a convolution or matrix product, if it is not float32, if its shape is
    unknown, if its weight is not constant, if its input is constant, or if a layout is packed.
    """
    name = operator_name(value)
    if name not in (*CONVOLUTIONS, "relax.matmul"):
        return None
    data, weight = value.args[0], array_of(value.args[1])
    shape = static_shape(data)
    typed = is_float32(data) and is_float32(value.args[1]) and is_float32(value)
    if weight is None or array_of(data) is not None or shape is None or not typed:
        return None
    if name == "relax.matmul":
        if len(shape) < 2 or weight.ndim != 2:
            return None
        return Layer(value, weight, len(shape) - 1, len(shape) - 1, 0, 1, 1, False)
    attrs = value.attrs
    layouts = layouts_of(attrs)
    if not all(layout.isalpha() and layout.isupper() for layout in layouts):
        return None
    return Layer(
        value,
        weight,
        attrs.data_layout.index("C"),
        attrs.out_layout.index("C"),
        attrs.kernel_layout.index("I"),
        attrs.kernel_layout.index("O"),
        int(attrs.groups),
        any(int(extent) != 0 for extent in attrs.padding),
    )

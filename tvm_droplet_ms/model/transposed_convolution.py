# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions as convolutions of which each output is a block of pixels.

TVM puts zeros between the pixels and convolves, so that of a stride of 2 three products in four are
by zero. Shi et al., "Is the deconvolution layer the same as a convolutional layer?" (2016), section
2, says how to leave them out: pixel ``s q + r`` of the output has the taps ``r + s j`` of the
kernel, on the pixels ``q - j`` of the input.
"""

from typing import Any

import numpy as np

import tvm
from tvm import relax

from .bindings import Bindings, Expr, Var, array_of, constant, operator_name, static_shape
from .layers import layouts_of
from .rewriting import Emit, binding_pass, stateless

TRANSPOSED = "relax.nn.conv2d_transpose"

_TO_NHWC, _TO_NCHW = [0, 2, 3, 1], [0, 3, 1, 2]


def split_transposed() -> tvm.transform.Pass:
    """Make a pass that computes transposed convolutions by convolutions of blocks of pixels.

    Returns the pass. It changes 2-D ones of one group in NCHW, with constant weights, a static
    input, a stride of at least 2 and no dilation.
    """
    return binding_pass("SplitTransposed", stateless(_split), [TRANSPOSED])


def block_weights(
    weights: "np.ndarray[Any, Any]", stride: tuple[int, int]
) -> "np.ndarray[Any, Any]":
    """The weights of the convolution that computes blocks of pixels.

    ``weights``: those of the transposed convolution, IOHW. ``stride``: its stride: the size of a
    block. Returns OIHW; an output channel is a row in the block, a column in it, and a channel.
    """
    inputs, outputs = weights.shape[:2]
    taps = [-(-extent // step) for extent, step in zip(weights.shape[2:], stride, strict=True)]
    widths = [
        (0, count * step - extent)
        for count, step, extent in zip(taps, stride, weights.shape[2:], strict=True)
    ]
    padded = np.pad(weights, [(0, 0), (0, 0), *widths])
    # A convolution has its taps in the order of the pixels, a transposed one in the other order.
    split = padded.reshape(inputs, outputs, taps[0], stride[0], taps[1], stride[1])
    split = split[:, :, ::-1, :, ::-1]
    blocks = split.transpose(3, 5, 1, 0, 2, 4)
    return np.ascontiguousarray(blocks.reshape(-1, inputs, *taps))


def _split(bindings: Bindings, _var: Var, value: Expr, emit: Emit) -> Expr | None:
    if operator_name(value) != TRANSPOSED:
        return None
    weights = array_of(bindings.value_of(value.args[1]))
    shape, result = static_shape(value.args[0]), static_shape(value)
    if weights is None or shape is None or result is None or not _is_plain(value.attrs):
        return None
    attrs = value.attrs
    rows, columns = (int(step) for step in attrs.strides)
    blocks = block_weights(weights, (rows, columns))
    taps = blocks.shape[2:]
    begin = [int(attrs.padding[0]), int(attrs.padding[1])]
    end = [begin[0] + result[2], begin[1] + result[3]]
    high, wide = shape[2] + taps[0] - 1, shape[3] + taps[1] - 1
    # Output padding may ask for pixels that no tap reaches.
    if end[0] > high * rows or end[1] > wide * columns:
        return None
    padding = [taps[0] - 1, taps[1] - 1] * 2
    found = relax.op.nn.conv2d(
        value.args[0], constant(blocks), padding=padding, out_dtype=attrs.out_dtype
    )
    found = emit(relax.op.permute_dims(emit(found), _TO_NHWC))
    found = emit(relax.op.reshape(found, (shape[0], high, wide, rows, columns, result[1])))
    found = emit(relax.op.permute_dims(found, [0, 1, 3, 2, 4, 5]))
    found = emit(relax.op.reshape(found, (shape[0], high * rows, wide * columns, result[1])))
    if (begin, end) != ([0, 0], [high * rows, wide * columns]):
        found = emit(relax.op.strided_slice(found, axes=[1, 2], begin=begin, end=end))
    return relax.op.permute_dims(found, _TO_NCHW)


def _is_plain(attrs: Any) -> bool:
    """True if a transposed convolution is one that can be split."""
    return (
        layouts_of(attrs) == ("NCHW", "IOHW", "NCHW")
        and int(attrs.groups) == 1
        and all(int(step) == 1 for step in attrs.dilation)
        and max(int(step) for step in attrs.strides) > 1
    )

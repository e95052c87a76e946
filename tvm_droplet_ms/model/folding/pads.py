# SPDX-License-Identifier: Apache-2.0
"""Explicit zero pads, moved into the convolution or the pool that follows them."""

from typing import Any

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, operator_name
from ..layers import CONVOLUTIONS, convolution_like
from ..rewriting import Emit, binding_pass, stateless

POOLS = {
    f"relax.nn.{kind}_pool{rank}d": getattr(relax.op.nn, f"{kind}_pool{rank}d")
    for kind in ("avg", "max")
    for rank in (1, 2, 3)
}


def merged_padding(layout: str, pad_width: list[int], padding: list[int]) -> list[int] | None:
    """Add the widths of an explicit pad to the padding of the operator that follows it.

    ``layout``: layout of the data, such as "NCHW". ``pad_width``: zeros before and after each axis
    of the data: before the first, after the first, and so on. ``padding``: zeros before each
    spatial axis, and then after each. Returns the sum, in the form of `padding`. None if the pad
    applies to the batch or the channels, or removes elements.
    """
    spatial = [axis for axis, letter in enumerate(layout) if letter not in "NC"]
    others = [axis for axis in range(len(layout)) if axis not in spatial]
    if min(pad_width) < 0 or any(pad_width[2 * axis + end] for axis in others for end in (0, 1)):
        return None
    widths = [pad_width[2 * axis + end] for end in (0, 1) for axis in spatial]
    return [own + added for own, added in zip(padding, widths, strict=True)]


def _is_zero_pad(pad: relax.Call) -> bool:
    value: Any = pad.attrs.pad_value
    return str(pad.attrs.pad_mode) == "constant" and float(value) == 0


def _rewrite(bindings: Bindings, _var: Var, value: Expr, _emit: Emit) -> Expr | None:
    name = operator_name(value)
    if name not in CONVOLUTIONS and name not in POOLS:
        return None
    pad = bindings.call_of(value.args[0], "relax.nn.pad")
    if pad is None or not _is_zero_pad(pad):
        return None
    attrs = value.attrs
    layout = attrs.layout if name in POOLS else attrs.data_layout
    pad_width = [int(width) for width in pad.attrs.pad_width]
    padding = [int(width) for width in attrs.padding]
    if not layout.isupper() or len(padding) != 2 * (len(layout) - 2):
        return None
    merged = merged_padding(layout, pad_width, padding)
    if merged is None:
        return None
    if name in CONVOLUTIONS:
        return convolution_like(value, pad.args[0], value.args[1], padding=merged)
    if attrs.ceil_mode or {int(each) for each in attrs.dilation} != {1}:
        return None
    kernel = [int(size) for size in attrs.pool_size]
    if any(width >= size for width, size in zip(merged, [*kernel, *kernel], strict=True)):
        return None
    if "avg" in name:
        is_same = bool(attrs.count_include_pad) or not any(padding)
    else:
        is_same = bindings.call_of(pad.args[0], "relax.nn.relu") is not None
    if not is_same:
        return None
    counts = "avg" in name or bool(attrs.count_include_pad)
    options = (kernel, attrs.strides, merged, attrs.dilation, False, counts, layout)
    return POOLS[name](pad.args[0], *options)


def fold_pads() -> tvm.transform.Pass:
    """Make a pass that moves each zero pad into the padding of the convolution or pool behind it.

    PyTorch's ``ZeroPad2d`` and models that were converted from TensorFlow pad explicitly.
    ``ConvertLayout`` has no rule for ``relax.nn.pad``, and the pad would be a separate kernel. A
    pad of another value or mode, of the batch or the channels, or with negative widths stays. The
    zeros must count in an average, and do not change a maximum only behind a ``relu``. Returns the
    pass. If other operators also use a pad, they keep it.
    """
    return binding_pass("FoldPads", stateless(_rewrite), ["relax.nn.pad"])

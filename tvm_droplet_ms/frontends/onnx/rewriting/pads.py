# SPDX-License-Identifier: Apache-2.0
"""Move explicit pads of an ONNX graph into the convolutions or pools that read them."""

from collections.abc import Sequence
from typing import Any

from onnx import NodeProto

from ..order import is_standard
from .graph import OnnxGraph, attributes_of

KINDS = ("Conv", "AveragePool", "MaxPool")


def same_padding(
    extents: Sequence[int | None],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    *,
    lower: bool,
) -> list[int] | None:
    """Return the padding of SAME_UPPER or SAME_LOWER in numbers.

    The output has ``ceil(extent / stride)`` elements along each axis (ONNX, operator ``Conv``).
    ``extents``: extents of the spatial axes of the input. None for an unknown extent. ``kernel``,
    ``strides``, ``dilations``: the convolution's, for each spatial axis. ``lower``: whether an odd
    element goes before the axis rather than after it. Returns the numbers of zeros before each
    axis, and then after each. None if a required extent is not known.
    """
    before, after = [], []
    for extent, size, stride, dilation in zip(extents, kernel, strides, dilations, strict=True):
        reach = (size - 1) * dilation + 1
        if stride == 1:
            total = reach - 1
        elif extent is None:
            return None
        else:
            total = max((-(-extent // stride) - 1) * stride + reach - extent, 0)
        small, large = total // 2, total - total // 2
        before.append(large if lower else small)
        after.append(small if lower else large)
    return before + after


def explicit_auto_pad(graph: OnnxGraph, node: NodeProto) -> None:
    """Replace SAME_UPPER and SAME_LOWER of a convolution by explicit padding.

    The importer would add a separate pad. A convolution of unknown kernel or extents stays.
    """
    attributes = attributes_of(node)
    mode = attributes.get("auto_pad", b"NOTSET")
    weight = graph.constant(node.input[1]) if node.op_type == "Conv" else None
    if weight is None or mode not in (b"SAME_UPPER", b"SAME_LOWER"):
        return
    kernel = weight.shape[2:]
    ones = [1] * len(kernel)
    strides, dilations = attributes.get("strides", ones), attributes.get("dilations", ones)
    extents: Sequence[int | None] = [None] * len(kernel)
    if max(strides) > 1:
        shape = graph.shape(node.input[0])
        extents = extents if shape is None else shape[2:]
    pads = same_padding(extents, kernel, strides, dilations, lower=mode == b"SAME_LOWER")
    if pads is not None:
        graph.set_attributes(node, auto_pad="NOTSET", pads=pads)


def _zero_pad(graph: OnnxGraph, node: NodeProto) -> list[int] | None:
    """Return the widths of a ``Pad`` with zeros: before each axis, and then after each.

    None if it pads with other values, if a width is negative, or if the widths are not constant or
    do not cover all axes.
    """
    attributes = attributes_of(node)
    if attributes.get("mode", b"constant") != b"constant":
        return None
    if graph.opset < 11:
        value = attributes.get("value", 0.0)
        widths = attributes.get("pads", attributes.get("paddings"))
    else:
        inputs = [*node.input, "", "", ""]
        zero = graph.constant(inputs[2]) if inputs[2] else None
        if inputs[3] or (inputs[2] and (zero is None or zero.size != 1)):
            return None
        value = 0.0 if zero is None else float(zero.item())
        found = graph.constant(inputs[1])
        widths = None if found is None else found.tolist()
    zeros = value == 0 and widths is not None and min(widths, default=-1) >= 0
    return [int(width) for width in widths or ()] if zeros else None


def _new_attributes(
    graph: OnnxGraph, node: NodeProto, source: str, added: list[int]
) -> dict[str, Any] | None:
    """Return the attributes with which a node does the padding itself. None if it cannot."""
    attributes = attributes_of(node)
    mode = attributes.get("auto_pad", b"NOTSET")
    own = attributes.get("pads", [0] * len(added))
    if mode not in (b"NOTSET", b"VALID") or len(own) != len(added):
        return None
    new = {"auto_pad": "NOTSET", "pads": [a + b for a, b in zip(own, added)]}
    if node.op_type == "Conv":
        return new
    if attributes.get("ceil_mode", 0) or set(attributes.get("dilations", [1])) != {1}:
        return None
    kernel = attributes["kernel_shape"]
    if any(width >= size for width, size in zip(new["pads"], [*kernel, *kernel])):
        return None
    if node.op_type == "AveragePool":
        # The zeros of the pad must count in the average.
        counts = attributes.get("count_include_pad", 0) or not any(own)
        return new | {"count_include_pad": 1} if counts else None
    if any(node.output[1:]):  # The positions of the maxima refer to the padded tensor.
        return None
    # Zeros do not change a maximum of activations only if no activation is negative.
    producer = graph.producers.get(source)
    return new if producer is not None and is_standard(producer, "Relu") else None


def fold_pad(graph: OnnxGraph, node: NodeProto) -> None:
    """Move the ``Pad`` before a convolution or pool into the node's own padding.

    Only zeros around the spatial axes are moved, and only if the result is the same: into
    convolutions, into average pools that count the padding, and into maximum pools after a
    ``Relu``.
    """
    pad = graph.producers.get(node.input[0]) if node.op_type in KINDS else None
    if pad is None or not is_standard(pad, "Pad"):
        return
    widths = _zero_pad(graph, pad)
    if widths is None or len(widths) % 2:
        return
    rank = len(widths) // 2
    if any([*widths[:2], *widths[rank : rank + 2]]):
        return
    added = widths[2:rank] + widths[rank + 2 :]
    new = _new_attributes(graph, node, pad.input[0], added)
    if new is not None:
        graph.replace_input(node, 0, pad.input[0])
        graph.set_attributes(node, **new)

# SPDX-License-Identifier: Apache-2.0
"""Rewrite ONNX nodes that TVM's importer turns into kernels opaque to graph passes.

TVM 0.27 (``python/tvm/relax/frontend/onnx/onnx_frontend.py``) imports ``Clip``, ``Pad`` and the
padding of ``auto_pad`` as TIR functions, and ``ConstantOfShape`` as a broadcast that fills the
tensor at run time. ``Sum``, ``Max``, ``Min`` and ``Dropout`` are rewritten after the import
(:mod:`~tvm_droplet_ms.model.stacks`, :mod:`~tvm_droplet_ms.model.layout.convertible`).
"""

from copy import deepcopy
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto

from ..order import is_standard
from .graph import OnnxGraph, attributes_of
from .pads import explicit_auto_pad, fold_pad
from .quantized import expand_quantized

Array = np.ndarray[Any, Any]


def _bound(graph: OnnxGraph, node: NodeProto, name: str) -> Array | None:
    """Return a bound of a ``Clip`` as a scalar. None if it is not constant or not float32.

    Infinite if the bound is absent or NaN: the importer ignores a NaN bound too.
    """
    infinite = np.array(-np.inf if name == "min" else np.inf, np.float32)
    index = 1 if name == "min" else 2
    value: Array | None
    if graph.opset < 11 and graph.is_float32():
        value = np.array(attributes_of(node).get(name, infinite), np.float32)
    elif graph.opset < 11:
        value = None
    elif len(node.input) > index and node.input[index]:
        value = graph.constant(node.input[index])
    else:
        value = infinite
    if value is None or value.size != 1 or value.dtype != np.float32:
        return None
    return infinite if np.isnan(value).any() else value.reshape(())


def _clip(graph: OnnxGraph, node: NodeProto) -> list[NodeProto] | None:
    """Rewrite a ``Clip`` between constants as ``Max`` and ``Min``."""
    low, high = _bound(graph, node, "min"), _bound(graph, node, "max")
    if low is None or high is None:
        return None
    bounds = [("Max", low), ("Min", high)]
    finite = [(kind, bound) for kind, bound in bounds if np.isfinite(bound)]
    if not finite:
        return [graph.make_node("Identity", node.input[:1], node.output[0])]
    nodes, source = [], node.input[0]
    for index, (kind, bound) in enumerate(finite):
        last = index == len(finite) - 1
        constant = graph.new_name(f"{node.output[0]}_bound")
        output = node.output[0] if last else graph.new_name(f"{node.output[0]}_partial")
        nodes.append(graph.make_constant(bound, constant))
        nodes.append(graph.make_node(kind, [source, constant], output))
        source = output
    return nodes


def _constant_of_shape(graph: OnnxGraph, node: NodeProto) -> list[NodeProto] | None:
    """Rewrite a ``ConstantOfShape`` of constant shape as a constant."""
    shape = graph.constant(node.input[0])
    if shape is None:
        return None
    value = attributes_of(node).get("value")
    fill = np.zeros(1, np.float32) if value is None else onnx.numpy_helper.to_array(value)
    values = np.full([int(extent) for extent in shape], fill.item(), fill.dtype)
    return [graph.make_constant(values, node.output[0])]


def _axes(graph: OnnxGraph, node: NodeProto) -> list[NodeProto] | None:
    """Rewrite a scalar axis as a list of one, which ONNX requires."""
    axes = graph.constant(node.input[1]) if len(node.input) > 1 else None
    if axes is None or axes.ndim:
        return None
    listed = graph.new_name(f"{node.output[0]}_axes")
    graph.replace_input(node, 1, listed)
    return [graph.make_constant(axes.reshape(1), listed), node]


def _one_hot(graph: OnnxGraph, node: NodeProto) -> list[NodeProto] | None:
    """Rewrite a ``OneHot`` of constant depth as comparisons with the positions.

    TVM's importer converts the values to Python numbers, and thus to float64. A negative index
    counts from the end, and an index out of bounds selects nothing (ONNX, operator ``OneHot``).
    Returns the replacement nodes. None if the depth, the values or the shape of the indices is not
    known.
    """
    indices, depth, values = node.input
    shape, count, pair = graph.shape(indices), graph.constant(depth), graph.constant(values)
    if shape is None or count is None or pair is None or pair.size != 2:
        return None
    axis = int(attributes_of(node).get("axis", -1)) % (len(shape) + 1)
    extent = int(count.reshape(-1)[0])
    column_shape = [extent, *[1] * (len(shape) - axis)]
    positions = np.arange(extent, dtype=np.int64).reshape(column_shape)
    output = node.output[0]
    names = {
        kind: graph.new_name(f"{output}_{kind}")
        for kind in ("shape", "integers", "column", "first", "last", "is_first", "is_last", "is_on")
    }
    names |= {kind: graph.new_name(f"{output}_{kind}") for kind in ("off", "on")}
    cast = graph.make_node("Cast", [indices], names["integers"])
    graph.set_attributes(cast, to=7)  # TensorProto.INT64
    column = np.array([*shape[:axis], 1, *shape[axis:]], np.int64)
    return [
        cast,
        graph.make_constant(column, names["shape"]),
        graph.make_constant(positions, names["first"]),
        graph.make_constant(positions - extent, names["last"]),
        graph.make_constant(pair.reshape(-1)[0], names["off"]),
        graph.make_constant(pair.reshape(-1)[1], names["on"]),
        graph.make_node("Reshape", [names["integers"], names["shape"]], names["column"]),
        graph.make_node("Equal", [names["column"], names["first"]], names["is_first"]),
        graph.make_node("Equal", [names["column"], names["last"]], names["is_last"]),
        graph.make_node("Or", [names["is_first"], names["is_last"]], names["is_on"]),
        graph.make_node("Where", [names["is_on"], names["on"], names["off"]], output),
    ]


REWRITES = {
    "Clip": _clip,
    "ConstantOfShape": _constant_of_shape,
    "OneHot": _one_hot,
    "Squeeze": _axes,
    "Unsqueeze": _axes,
}


def prepare_onnx(model: ModelProto) -> ModelProto:
    """Rewrite the nodes of a model that TVM's importer turns into opaque kernels.

    - ``Clip`` between constants becomes ``Max`` and ``Min``.
    - ``ConstantOfShape`` of a constant shape becomes a ``Constant``.
    - ``OneHot`` of constant depth becomes comparisons.
    - Quantized operators of ONNX Runtime become ONNX operators between dequantization and
      quantization.
    - A scalar that ONNX Runtime accepts as a list of axes becomes a list.
    - ``Pad`` with zeros moves into the padding of the convolutions and pools that read it, and
      SAME_UPPER and SAME_LOWER of a convolution become explicit padding.

    ``model`` is not changed. Returns the model to import. Other nodes, and nodes inside the
    branches of ``If`` and the bodies of ``Loop``, stay unchanged.
    """
    copy = deepcopy(model)
    graph = OnnxGraph(copy)
    for node in copy.graph.node:
        if is_standard(node):
            explicit_auto_pad(graph, node)
            fold_pad(graph, node)
    nodes: list[NodeProto] = []
    for node in copy.graph.node:
        if is_standard(node, "Pad") and not any(graph.is_used(name) for name in node.output):
            continue
        known = REWRITES.get(node.op_type) if is_standard(node) else expand_quantized
        new = None if known is None else known(graph, node)
        nodes.extend([node] if new is None else new)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy

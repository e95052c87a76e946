# SPDX-License-Identifier: Apache-2.0
"""Rewrites of ONNX nodes that TVM's importer turns into kernels no graph pass can see through.

TVM 0.27 (``python/tvm/relax/frontend/onnx/onnx_frontend.py``) imports ``Clip``, ``Pad`` and the
padding of ``auto_pad`` as TIR functions, and ``ConstantOfShape`` as a broadcast that fills the
tensor at run time. What it makes of ``Sum``, ``Max``, ``Min`` and ``Dropout`` is put right after
the import (:mod:`~tvm_droplet_ms.model.stacks`, :mod:`~tvm_droplet_ms.model.folding.dropout`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .graph import OnnxGraph, attributes_of, is_standard
from .one_hot import explicit_one_hot
from .pads import explicit_auto_pad, fold_pad
from .quantized import expand_quantized

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Array = np.ndarray[Any, Any]


def _bound(graph: OnnxGraph, node: NodeProto, name: str) -> Array | None:
    """Return a bound of a ``Clip`` as a scalar. None if it is not constant or not float32.

    Infinite if there is none, or if it is not a number: the importer ignores such a bound too.
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
    fill = np.zeros(1, np.float32)
    if value is not None:
        import onnx

        fill = onnx.numpy_helper.to_array(value)
    values = np.full([int(extent) for extent in shape], fill.item(), fill.dtype)
    return [graph.make_constant(values, node.output[0])]


def _axes(graph: OnnxGraph, node: NodeProto) -> list[NodeProto] | None:
    """Rewrite axes that are a scalar as a list of one, which is what ONNX asks for."""
    axes = graph.constant(node.input[1]) if len(node.input) > 1 else None
    if axes is None or axes.ndim:
        return None
    listed = graph.new_name(f"{node.output[0]}_axes")
    graph.replace_input(node, 1, listed)
    return [graph.make_constant(axes.reshape(1), listed), node]


REWRITES = {
    "Clip": _clip,
    "ConstantOfShape": _constant_of_shape,
    "OneHot": explicit_one_hot,
    "Squeeze": _axes,
    "Unsqueeze": _axes,
}


def prepare_onnx(
    model: ModelProto, shapes: Mapping[str, Sequence[int]] | None = None
) -> ModelProto:
    """Rewrite the nodes of a model that TVM's importer makes opaque kernels of.

    - ``Clip`` between constants becomes ``Max`` and ``Min``.
    - ``ConstantOfShape`` of a constant shape becomes a ``Constant``, each one of its own.
    - ``OneHot`` of constant depth becomes comparisons.
    - Quantised operators of ONNX Runtime become ONNX's between dequantisation and quantisation.
    - A scalar that ONNX Runtime takes for a list of axes becomes one.
    - ``Pad`` with zeros goes into the padding of the convolutions and pools behind it, and
      SAME_UPPER and SAME_LOWER of a convolution become explicit padding.

    ``model`` is not changed. ``shapes``: shapes of inputs, which replace those that the model says.
    Returns the model to import. What is not listed above is left as it is; so are nodes inside the
    branches of ``If`` and the bodies of ``Loop``.
    """
    copy = type(model)()
    copy.CopyFrom(model)
    graph = OnnxGraph(copy, shapes or {})
    standard = [node for node in copy.graph.node if node.domain in ("", "ai.onnx")]
    for node in standard:
        explicit_auto_pad(graph, node)
        fold_pad(graph, node)
    nodes: list[NodeProto] = []
    for node in copy.graph.node:
        if is_standard(node, "Pad") and not any(graph.is_used(name) for name in node.output):
            continue
        is_onnx = node.domain in ("", "ai.onnx")
        known = REWRITES.get(node.op_type) if is_onnx else expand_quantized
        new = None if known is None else known(graph, node)
        nodes.extend([node] if new is None else new)
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy

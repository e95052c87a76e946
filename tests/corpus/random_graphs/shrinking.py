# SPDX-License-Identifier: Apache-2.0
"""Makes a failing graph smaller: nodes are dropped while it fails alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx
from onnx import TensorProto, helper


def shrink(
    model: onnx.ModelProto, fails: Callable[[onnx.ModelProto], bool], most: int = 60
) -> onnx.ModelProto:
    """Drop nodes while a graph fails.

    ``model``: a failing graph, with the shapes of its values. ``fails``: whether a graph fails in
    the same way. ``most``: the most graphs to try. Returns one that fails; smaller if any was.
    """
    changed = True
    while changed and most > 0:
        changed = False
        for smaller in _smaller(model):
            if most <= 0:
                break
            most -= 1
            if fails(smaller):
                model, changed = smaller, True
                break
    return model


def _smaller(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Graphs with fewer nodes, the smallest first."""
    graph = model.graph
    shapes = _shapes(model)
    outputs = [value.name for value in graph.output]
    # One output of several; then one value as the only output; then a value as an input.
    if len(outputs) > 1:
        for name in outputs:
            yield _cut(model, [name], None)
    made = [name for node in graph.node for name in node.output if name in shapes]
    for name in made:
        if [name] != outputs:
            yield _cut(model, [name], None)
    for name in reversed(made):
        if name not in outputs:
            yield _cut(model, outputs, name)


def _shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """The shapes of float32 values."""
    found = {}
    graph = model.graph
    for value in (*graph.value_info, *graph.output, *graph.input):
        kind = value.type.tensor_type
        if kind.elem_type == TensorProto.FLOAT:
            found[value.name] = tuple(extent.dim_value for extent in kind.shape.dim)
    return found


def _cut(model: onnx.ModelProto, outputs: list[str], given: str | None) -> onnx.ModelProto:
    """The part of a graph that some outputs need, with one value as an input."""
    shapes = _shapes(model)
    needed, kept = set(outputs), []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output) - {given}:
            kept.append(node)
            needed.update(node.input)
    inputs = [value.name for value in model.graph.input if value.name in needed]
    if given in needed:
        inputs.append(str(given))

    def info(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name])

    graph = helper.make_graph(
        kept[::-1],
        "smaller",
        list(map(info, inputs)),
        list(map(info, outputs)),
        [tensor for tensor in model.graph.initializer if tensor.name in needed],
        value_info=model.graph.value_info,
    )
    smaller = helper.make_model(
        graph, opset_imports=model.opset_import, ir_version=model.ir_version
    )
    return onnx.shape_inference.infer_shapes(smaller)

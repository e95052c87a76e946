# SPDX-License-Identifier: Apache-2.0
"""Convert float16 and bfloat16 ONNX models to float32.

ONNX Runtime also computes these models in float32 on a CPU, but rounds after each operator.
Without that rounding, the results are closer to exact arithmetic.
"""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
)

from .control_flow import rename
from .mapped import array_of_tensor
from .order import all_graphs, names_in

_HALVES = {TensorProto.FLOAT16: "float16", TensorProto.BFLOAT16: "bfloat16"}

TYPE_ATTRIBUTES = ("to", "dtype", "output_dtype", "softmax_precision")
"""Attributes that hold a type, in ``Cast``, random generators, quantization and attention."""


@dataclass(frozen=True)
class Declared:
    """The half types in a model.

    ``inputs``, ``outputs``: the types of inputs and outputs of half type, by name. ``anywhere``:
    all half types in the model, sorted. Empty if there are none.
    """

    inputs: dict[str, str]
    outputs: dict[str, str]
    anywhere: tuple[str, ...]


def half_types(model: ModelProto) -> Declared:
    """Find float16 and bfloat16 in a model."""
    inputs, outputs = (
        {value.name: _HALVES[kind] for value in side if (kind := _kind(value)) in _HALVES}
        for side in (model.graph.input, model.graph.output)
    )
    found = {*inputs.values(), *outputs.values()}
    for each in _bodies(model):
        found.update(_HALVES[t.data_type] for t in _tensors(each) if t.data_type in _HALVES)
        found.update(_HALVES[a.i] for a in _attributes(each) if _is_half_type(a))
    return Declared(inputs, outputs, tuple(sorted(found)))


def _kind(value: ValueInfoProto) -> int:
    return int(value.type.tensor_type.elem_type)


def to_float32(model: ModelProto, *, borders: bool) -> ModelProto:
    """Return a copy of a model that computes in float32.

    ``model`` is not changed. ``borders``: whether the inputs and outputs keep their types, and are
    cast; otherwise they are float32. Returns the copy. Its weights equal the weights of `model`,
    which float32 holds exactly.
    """
    declared = half_types(model)
    copy = deepcopy(model)
    kept = {value.name: value for value in [*model.graph.input, *model.graph.output]}
    for body in list(_bodies(copy)):
        _convert(body)
    if not borders:
        return copy
    cast, kinds = onnx.helper.make_node, {name: number for number, name in _HALVES.items()}
    taken = names_in(copy.graph)
    inside = {
        name: next(new for n in count() if (new := f"{name}_float32_{n}") not in taken)
        for name in [*declared.inputs, *declared.outputs]
    }
    for node in copy.graph.node:
        rename(node, inside)
    for tensor in copy.graph.initializer:
        tensor.name = inside.get(tensor.name, tensor.name)
    before = [
        cast("Cast", [name], [inside[name]], to=onnx.TensorProto.FLOAT) for name in declared.inputs
    ]
    after = [
        cast("Cast", [inside[name]], [name], to=kinds[kind])
        for name, kind in declared.outputs.items()
        if name not in declared.inputs
    ]
    for value in [*copy.graph.input, *copy.graph.output]:
        value.CopyFrom(kept[value.name])
    nodes = [*before, *copy.graph.node, *after]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


Body = Any
"""A ``GraphProto``, or a ``FunctionProto``, which has nodes too."""


def _bodies(model: ModelProto) -> Iterator[Body]:
    """The graphs of a model, including the bodies of its functions."""
    for body in (model.graph, *model.functions):
        yield from all_graphs(body)


def _convert(graph: Body) -> None:
    for tensor in _tensors(graph):
        if tensor.data_type in _HALVES:
            values = array_of_tensor(tensor).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
    for attribute in _attributes(graph):
        if _is_half_type(attribute):
            attribute.i = onnx.TensorProto.FLOAT
    borders = [*graph.input, *graph.output] if isinstance(graph, GraphProto) else []
    for value in [*borders, *graph.value_info]:
        _convert_type(value.type)


def _convert_type(kind: TypeProto) -> None:
    for inner in ("sequence_type", "optional_type"):
        if kind.HasField(inner):
            _convert_type(getattr(kind, inner).elem_type)
    if kind.HasField("tensor_type") and kind.tensor_type.elem_type in _HALVES:
        kind.tensor_type.elem_type = onnx.TensorProto.FLOAT


def _is_half_type(attribute: AttributeProto) -> bool:
    return attribute.name in TYPE_ATTRIBUTES and attribute.i in _HALVES


def _attributes(graph: Body) -> Iterable[AttributeProto]:
    return (attribute for node in graph.node for attribute in node.attribute)


def _tensors(graph: Body) -> Iterator[TensorProto]:
    if isinstance(graph, GraphProto):
        yield from graph.initializer
    for attribute in _attributes(graph):
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors

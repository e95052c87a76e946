# SPDX-License-Identifier: Apache-2.0
"""Simplify an ONNX model so that TVM's importer reads it correctly."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, SparseTensorProto, TensorProto

from ...session.errors import first_line
from .folding import fold_constants
from .halves import half_types, to_float32
from .mapped import array_of_tensor
from .opset import OLDEST, with_new_opset
from .order import all_graphs, reads, sort_nodes, true_inputs

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Simplified:
    """A model to import.

    ``notes``: changes that a user should know about, and steps that failed.
    """

    model: ModelProto
    notes: tuple[str, ...]


def simplify_onnx(
    model: ModelProto,
    shapes: Mapping[str, Sequence[int]],
    constants: Mapping[str, Array] | None = None,
) -> Simplified:
    """Bind the inputs of a model, sort its nodes, and fold its constants.

    Functions of the model are inlined, half floats become float32, and old operators are converted
    to a version that TVM's importer knows. ``model`` is not changed. ``shapes``: the shape of each
    input. ``constants``: values of inputs, which become initializers. Returns the model and notes
    about it. A failed step is skipped and noted. Raises ``ValueError`` if the nodes of the model
    have no order.
    """
    changed = bound_in_order(model, shapes, constants or {})
    notes: list[str] = []
    if kinds := half_types(changed).anywhere:
        changed = to_float32(changed, borders=True)
        notes.append(
            f"the model is one of {' and '.join(kinds)}: it is computed in float32, with its "
            "weights converted; inputs and outputs are as declared"
        )
    steps = (
        ("its functions were not inlined", _inline),
        ("its old operators were not converted to new ones", with_new_opset),
        ("its weights of a few bits were not made bytes", widen_integers),
        ("it was not simplified", _folded),
    )
    for failure, step in steps:
        changed = _attempt(step, changed, failure, notes)
    return Simplified(changed, tuple(notes))


def bound_in_order(
    model: ModelProto, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, Array]
) -> ModelProto:
    """Bind the inputs of a model and sort its nodes, and change nothing else.

    ``model`` is not changed. ``shapes``: the shape of each input. ``constants``: values of inputs,
    which become initializers. Returns a copy. Raises ``ValueError`` if the nodes of the model have
    no order.
    """
    bound = _bind_inputs(model, shapes, constants)
    sort_nodes(bound)
    return bound


def _bind_inputs(
    model: ModelProto, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, Array]
) -> ModelProto:
    """Return a copy of a model with bound input shapes and constant inputs.

    ``model`` is not changed. ``shapes``: the shapes of inputs by name. ``constants``: the values of
    inputs by name, in the inputs' types; these inputs become initializers. Returns the copy. It
    states shapes only for its inputs: shapes stated for open extents may be wrong.
    """
    copy = deepcopy(model)
    graph = copy.graph
    kept = [value for value in true_inputs(copy) if value.name not in constants]
    for value in kept:
        if value.name in shapes:
            shape = value.type.tensor_type.shape
            del shape.dim[:]
            # Set the shape even without extents: a scalar has an empty shape.
            value.type.tensor_type.shape.SetInParent()
            for extent in shapes[value.name]:
                shape.dim.add().dim_value = int(extent)
    del graph.input[:]
    graph.input.extend(kept)
    for each in all_graphs(graph):
        each.initializer.extend(map(_dense, each.sparse_initializer))
        del each.sparse_initializer[:]
    graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name) for name, value in constants.items()
    )
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    keep = [value for value in graph.value_info if not value.type.HasField("tensor_type")]
    del graph.value_info[:]
    graph.value_info.extend(keep)
    return copy


def _dense(tensor: SparseTensorProto) -> TensorProto:
    """A sparse initializer as a dense one."""
    values, places = map(onnx.numpy_helper.to_array, (tensor.values, tensor.indices))
    whole = np.zeros(tuple(tensor.dims), values.dtype)
    # Indices are positions in the flat tensor, or one index per axis.
    flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), whole.shape)
    whole.reshape(-1)[flat] = values
    return onnx.numpy_helper.from_array(whole, tensor.values.name)


def _attempt(
    step: Callable[[ModelProto], ModelProto], model: ModelProto, failure: str, notes: list[str]
) -> ModelProto:
    """The model after a step, or unchanged if the step fails or loses an output."""
    outputs = [value.name for value in model.graph.output]
    # ONNX's tools raise errors of many types. The model can still be imported without the step.
    try:
        changed = step(model)
    except Exception as error:
        notes.append(f"{failure}: {first_line(error)[:200]}")
        return model
    if [value.name for value in changed.graph.output] != outputs:
        notes.append(f"{failure}: outputs were lost")
        return model
    return changed


def _inline(model: ModelProto) -> ModelProto:
    if not model.functions:
        return model
    import onnx.inliner

    inlined: ModelProto = onnx.inliner.inline_local_functions(model)
    return inlined


def _folded(model: ModelProto) -> ModelProto:
    copy = deepcopy(model)
    fold_constants(copy)
    return copy


_NAMES = {"INT4": np.int8, "UINT4": np.uint8, "INT2": np.int8, "UINT2": np.uint8}
_KINDS = {
    getattr(TensorProto, name): kind for name, kind in _NAMES.items() if hasattr(TensorProto, name)
}
"""Map from the narrow ONNX types that this ONNX version has to NumPy types that hold them."""

_PLACES = {("", "DequantizeLinear"): (0, 2), ("com.microsoft", "GatherBlockQuantized"): (0, 3)}
"""The inputs of each operator that may have such a type: numbers and zero points."""


def widen_integers(model: ModelProto) -> ModelProto:
    """Widen 2-bit and 4-bit constants of operators to bytes: TVM has no tensors of these types.

    ``pack_weights`` packs them again where that is faster. Changes ``model``. They become int8 for
    ``GatherBlockQuantized``, whose uint8 values hold several numbers each.
    """
    constants = {each.name: each for each in model.graph.initializer if each.data_type in _KINDS}
    widened: dict[tuple[str, bool], str] = {}
    taken = {each.name for each in model.graph.initializer}
    for node in model.graph.node if constants else ():
        is_table = node.op_type == "GatherBlockQuantized"
        for place in _PLACES.get((node.domain.replace("ai.onnx", ""), node.op_type), ()):
            name = node.input[place] if len(node.input) > place else ""
            if name not in constants:
                continue
            if (name, is_table) not in widened:
                new = f"{name}_bytes"
                while new in taken:
                    new += "_"
                taken.add(new)
                tensor = constants[name]
                kind = np.int8 if is_table else _KINDS[tensor.data_type]
                values = array_of_tensor(tensor).astype(kind)
                model.graph.initializer.append(onnx.numpy_helper.from_array(values, new))
                widened[name, is_table] = new
            node.input[place] = widened[name, is_table]
    return model


_DOMAIN = "ai.onnx.ml"


def without_zip_maps(model: ModelProto) -> tuple[ModelProto, tuple[str, ...]]:
    """Replace each ``ZipMap`` that makes an output by its input: a row of scores for each map.

    ``model`` is not changed. Returns the changed copy, or `model` itself if it has no ``ZipMap``,
    and notes for the user.
    """
    outputs = {value.name for value in model.graph.output}
    read = {name for node in model.graph.node for name in reads(node)}
    notes = []
    changed = deepcopy(model) if any(map(_is_zip_map, model.graph.node)) else model
    for node in changed.graph.node:
        if not _is_zip_map(node) or node.output[0] not in outputs - read:
            continue
        for value in changed.graph.output:
            if value.name == node.output[0]:
                kind = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
                value.type.CopyFrom(kind)
        labels = [onnx.helper.get_attribute_value(each) for each in node.attribute]
        shown = [each.decode() if isinstance(each, bytes) else each for each in labels[0]]
        notes.append(
            f"output {node.output[0]!r} is a tensor with a column for each class, in the order "
            f"{shown}, and not a list of maps"
        )
        node.CopyFrom(onnx.helper.make_node("Identity", node.input, node.output, node.name))
    if notes and not any(each.domain in ("", "ai.onnx") for each in changed.opset_import):
        changed.opset_import.append(onnx.helper.make_opsetid("", OLDEST))
    return changed, tuple(notes)


def _is_zip_map(node: NodeProto) -> bool:
    return bool(node.domain == _DOMAIN and node.op_type == "ZipMap")

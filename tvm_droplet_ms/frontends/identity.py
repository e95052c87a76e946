# SPDX-License-Identifier: Apache-2.0
"""The identity of a model, which all runs in one work directory must share."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from itertools import chain
from types import CodeType
from typing import Any

import numpy as np
from tvm_ffi import structural_hash

from tvm import relax
from tvm.ir import GenericConst, GlobalVar, IRModule

from ..model.bindings import operator_name
from .imported import ModelIdentity
from .onnx.order import subgraphs

SMALL = 64
"""Integer tensors of at most this size count as shapes and axes, which depend on extents."""


Weight = tuple[str, str, tuple[int, ...], Any]
"""The name, type, shape and bytes of a weight."""


def identify(
    model: Any,
    parameters: Any = None,
    path: str | None = None,
    constants: Mapping[str, Any] | None = None,
) -> ModelIdentity:
    """Return the identity of an ONNX, PyTorch or Relax model.

    ``parameters``: the parameters of a Relax module by name. ``constants``: the values of bound
    inputs by name.
    """
    if isinstance(model, IRModule):
        name, operators = "a Relax module", _relax_operators(model)
        bound = dict(parameters or {})
        given = ((key, *_array(bound[key])) for key in sorted(bound))
        weights: Iterator[Weight] = chain(_relax(model), given)
    elif type(model).__module__.partition(".")[0] == "onnx":
        name = model.graph.name or "an ONNX model"
        functions = sorted(model.functions, key=lambda each: (each.domain, each.name))
        operators = chain.from_iterable(map(_onnx_operators, (model.graph, *functions)))
        weights = chain.from_iterable(map(_onnx, (model.graph, *functions)))
    else:
        name, operators, weights = type(model).__qualname__, _torch_operators(model), _torch(model)
    network, values = hashlib.blake2b(digest_size=16), hashlib.blake2b(digest_size=16)
    for text in operators:
        network.update(text.encode() + b"\0")
    for key, kind, shape, content in weights:
        network.update(f"{key} {kind} {shape}\0".encode())
        values.update(content)
    for key, value in sorted((constants or {}).items()):
        values.update(f"{key} {np.asarray(value).tolist()}\0".encode())
    shown = os.path.basename(path) if path else name
    return ModelIdentity(shown, network.hexdigest(), values.hexdigest())


def _array(value: Any) -> tuple[str, tuple[int, ...], Any]:
    """Return the type, shape and bytes of an array; no shape or bytes for a small integer one."""
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    if array.dtype.kind in "iub" and array.size <= SMALL:
        return str(array.dtype), (), b""
    return str(array.dtype), array.shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _onnx_operators(graph: Any) -> Iterator[str]:
    """Yield the operators of a graph or a function."""
    if hasattr(graph, "domain"):
        yield f"{graph.domain}.{graph.name}"
    for node in graph.node:
        if node.op_type == "Constant":
            continue
        yield f"{node.domain}.{node.op_type}"
        for attribute in node.attribute:
            if not (attribute.HasField("g") or attribute.graphs or attribute.HasField("t")):
                yield attribute.SerializeToString(deterministic=True).hex()
        for inner in subgraphs(node):
            yield from _onnx_operators(inner)


def _onnx(graph: Any) -> Iterator[Weight]:
    from .onnx.mapped import array_of_tensor, is_mapped  # Imports ONNX.

    of_numbers = (1, 10, 11, 16)  # FLOAT, FLOAT16, DOUBLE and BFLOAT16 of ``TensorProto``.
    tensors = list(getattr(graph, "initializer", ()))
    for node in graph.node:
        tensors += [each.t for each in node.attribute if each.HasField("t")]
        for each in node.attribute if node.op_type == "Constant" else ():
            if not each.HasField("t"):
                yield each.name, "", (), each.SerializeToString(deterministic=True)
        for inner in subgraphs(node):
            yield from _onnx(inner)
    for tensor in tensors:
        shape = tuple(tensor.dims)
        if tensor.data_type in of_numbers or np.prod(shape) > SMALL:
            content = tensor.raw_data or tensor.SerializeToString(deterministic=True)
            if is_mapped(tensor):
                content = array_of_tensor(tensor).reshape(-1).view(np.uint8).data
            yield tensor.name, str(tensor.data_type), shape, content


def _torch_operators(model: Any) -> Iterator[str]:
    if not hasattr(model, "modules"):
        yield from (f"{node.op} {node.target}" for node in model.graph.nodes)
        return
    yield repr(model)
    for part in model.modules():
        code = getattr(getattr(type(part), "forward", None), "__code__", None)
        yield "" if code is None else _code(code)


def _code(code: CodeType) -> str:
    """Return a function's instructions, and the names and constants that they refer to."""
    return f"{code.co_code.hex()} {code.co_names} {_constant(code.co_consts)}"


def _constant(value: Any) -> str:
    """Return a constant's text, the same in each process: the order of a set varies."""
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    return f"{{{sorted(map(_constant, value))}}}" if isinstance(value, frozenset) else repr(value)


def _torch(model: Any) -> Iterator[Weight]:
    state = model.state_dict  # A method of a module, and a property of a program.
    for name, tensor in (state() if callable(state) else state).items():
        yield name, *_tensor(tensor)
    # An exported program's numbers may be extents, so they do not belong to the network.
    for node in () if hasattr(model, "modules") else model.graph.nodes:
        numbers = [each for each in node.args if isinstance(each, int | float | str)]
        yield "", "", (), repr(numbers).encode()


def _tensor(tensor: Any) -> tuple[str, tuple[int, ...], Any]:
    import torch

    # Other objects than plain tensors, such as packed weights, are identified by their class.
    try:
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        content = flat.view(torch.uint8).numpy()
    except (AttributeError, RuntimeError, TypeError):
        return type(tensor).__qualname__, (), b""
    return str(tensor.dtype), tuple(tensor.shape), content


def _relax_operators(mod: IRModule) -> Iterator[str]:
    for each in _expressions(mod):
        if isinstance(each, relax.Call):
            attributes = 0 if each.attrs is None else structural_hash(each.attrs)
            # The kernel that ``relax.call_tir`` calls.
            is_kernel = each.args and isinstance(each.args[0], GlobalVar)
            kernel = str(each.args[0].name_hint) if is_kernel else ""
            yield f"{operator_name(each)} {kernel} {attributes}"


def _relax(mod: IRModule) -> Iterator[Weight]:
    for each in _expressions(mod):
        if isinstance(each, GenericConst):
            yield "", *_array(each.value)


def _expressions(mod: IRModule) -> list[Any]:
    """Return the expressions of all Relax functions, in the order of their names."""
    functions = {v.name_hint: f for v, f in mod.functions_items() if isinstance(f, relax.Function)}
    found: list[Any] = []
    for name in sorted(functions):
        relax.analysis.post_order_visit(functions[name].body, found.append)
    return found

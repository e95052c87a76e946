# SPDX-License-Identifier: Apache-2.0
"""ONNX Runtime as the reference of an ONNX model, and the first node where TVM differs from it.

Weights can be perturbed by a rounding error.
"""

import contextlib
import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto

from tvm.ir import IRModule

from ...measure.deviation import deviation, moved_by_rounding
from ...session.errors import first_line
from ..imported import Arrays, Reference, Run
from .evaluation import open_session
from .halves import half_types, to_float32
from .mapped import array_of_tensor, mapped_weights, release_mapped
from .operators.nodes.contrib.packed_weights import (
    has_lower_levels,
    rounds_to_bytes,
    with_exact_others,
)
from .order import all_graphs, named

QUANTIZED = {
    *("QuantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"),
    *("DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "QAttention"),
}
"""Operators that quantize values."""

EIGHT_BITS = 2.0**-9
"""Half a quantization step of eight bits, relative to the largest value."""

_LITERAL = {"session.disable_quant_qdq": "1"}
"""Otherwise ONNX Runtime computes a quantized model in integers, which round differently."""

_EXACT = {"session.x64quantprecision": "1"}
"""Otherwise it adds pairs of products in 16 bits without VNNI, which may overflow."""

LIMIT = 1e-2
"""A larger deviation of a node's output is not rounding."""


def onnx_runtime(
    model: onnx.ModelProto,
    names: Sequence[str],
    constants: Mapping[str, np.ndarray],
    threads: int,
    path: str | None = None,
    shared: Mapping[str, str] | None = None,
) -> tuple[Reference | None, str | None]:
    """Load the original model with ONNX Runtime; it takes the inputs ``names`` in this order.

    ``shared``: outputs that use the memory of an input, by input name. Returns the reference and
    None. If ONNX Runtime is missing, returns None twice. If it cannot load the model, returns None
    and the reason.
    """
    if find_spec("onnxruntime") is None:
        return None, None

    def load(source: onnx.ModelProto, path: str | None, literal: bool) -> Any:
        weights = mapped_weights(source)

        def opened(source: str | bytes) -> Any:
            if literal:
                # Some int8 operators have no exact form; their usual form does not overflow.
                with contextlib.suppress(Exception):
                    return open_session(source, threads, _LITERAL | _EXACT, weights=weights)
            return open_session(source, threads, _LITERAL if literal else {}, weights=weights)

        return opened(path) if path and not weights else _from_memory(source, opened)

    halves = half_types(model)
    makes_bytes = has_lower_levels(model)
    is_changed = makes_bytes or bool(halves.anywhere)

    def in_float32() -> onnx.ModelProto:
        if not is_changed:
            return model
        whole = to_float32(model, borders=False) if halves.anywhere else model
        return with_exact_others(whole, keeps_bytes=rounds_to_bytes())

    # ONNX Runtime raises about a dozen error classes, and Python a ValueError beyond 2 GB.
    try:
        loaded = _Session(lambda: load(in_float32(), None if is_changed else path, True))
    except Exception as error:
        return None, first_line(error)
    fixed = {name: _as_float32(value, name, halves.inputs) for name, value in constants.items()}

    def run_in(session: Any, inputs: Sequence[np.ndarray]) -> Arrays:
        given = {
            name: _as_float32(value, name, halves.inputs)
            for name, value in zip(names, inputs, strict=True)
        }
        return [
            np.asarray(value).astype(halves.outputs[output.name])
            if output.name in halves.outputs
            else value
            for output, value in zip(
                session.get_outputs(), _run(session, given | fixed, shared or {}), strict=True
            )
        ]

    @functools.cache
    def with_moved_weights(seed: int) -> Run:
        moved = move_weights(in_float32(), np.random.default_rng(seed))
        return functools.partial(run_in, load(moved, None, True))

    @functools.cache
    def as_it_came() -> Any:
        return load(model, path, False)

    def fastest(inputs: Sequence[np.ndarray]) -> Arrays:
        given = dict(zip(names, inputs, strict=True)) | dict(constants)
        return _run(as_it_came(), given, shared or {})

    is_quantized = makes_bytes or any(node.op_type in QUANTIZED for node in model.graph.node)
    differs = is_quantized or "float16" in halves.anywhere
    rounding = EIGHT_BITS if is_quantized else 0.0
    reference = Reference(
        "ONNX Runtime",
        lambda inputs: run_in(loaded.opened(), inputs),
        fastest if differs else None,
        rounding,
        with_moved_weights,
        loaded.close if mapped_weights(model) else lambda: None,
    )
    return reference, None


class _Session:
    """A session of ONNX Runtime that can be closed, and is opened again when it is used."""

    def __init__(self, open_it: Callable[[], Any]) -> None:
        self._open, self._session = open_it, open_it()

    def opened(self) -> Any:
        self._session = self._session or self._open()
        return self._session

    def close(self) -> None:
        self._session = None
        release_mapped()


def _run(session: Any, given: Mapping[str, np.ndarray], shared: Mapping[str, str]) -> Arrays:
    """Run a session; ``shared``: see ``onnx_runtime``."""
    if not shared:
        outputs: Arrays = session.run(None, given)
        return outputs
    from onnxruntime import OrtValue

    # A CPU OrtValue shares the array's memory; the copy preserves the caller's values.
    values = {name: OrtValue.ortvalue_from_numpy(np.array(each)) for name, each in given.items()}
    memory = {output: values[name] for name, output in shared.items()}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for each in session.get_outputs():
        if each.name in memory:
            binding.bind_ortvalue_output(each.name, memory[each.name])
        else:
            binding.bind_output(each.name)
    session.run_with_iobinding(binding)
    return [np.array(value) for value in binding.copy_outputs_to_cpu()]


def _from_memory(model: onnx.ModelProto, session: Callable[[str | bytes], Any]) -> Any:
    """Open a session for a model in memory; beyond 2 GB, its weights go into a file."""
    try:
        serialized = model.SerializeToString()
    # This is a ValueError or an EncodeError, depending on the version of protobuf.
    except Exception:
        copy = type(model)()
        copy.CopyFrom(model)  # Saving with external data removes the weights from the model.
        with tempfile.TemporaryDirectory(prefix="droplet_onnx_") as folder:
            path = str(Path(folder) / "model.onnx")
            onnx.save_model(copy, path, save_as_external_data=True, location="weights")
            return session(path)
    return session(serialized)


def _as_float32(value: np.ndarray, name: str, halves: Mapping[str, str]) -> np.ndarray:
    return value.astype(np.float32) if name in halves else value


def first_different_node(
    model: onnx.ModelProto,
    names: Sequence[str],
    load: Callable[[onnx.ModelProto], IRModule],
    inputs: Sequence[np.ndarray],
    compile_mod: Callable[[IRModule], Callable[[Sequence[np.ndarray]], Arrays]],
) -> str:
    """Describe the first node whose output differs between TVM and ONNX Runtime.

    The description is empty if no node differs or ONNX Runtime cannot load the model. ``load``: the
    importer. ``compile_mod``: compiles a module without this package's passes and without
    schedules.
    """
    inferred = onnx.shape_inference.infer_shapes(model).graph
    values = [*inferred.value_info, *inferred.output]
    floats = {
        value.name: value
        for value in values
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    makers = [
        (node, output) for node in model.graph.node for output in node.output if output in floats
    ]
    exposed = type(model)()
    exposed.CopyFrom(model)
    del exposed.graph.output[:]
    exposed.graph.output.extend(floats[output] for _, output in makers)
    reference, _ = onnx_runtime(exposed, names, {}, 1)
    if reference is None or not makers:
        return ""
    found = compile_mod(load(exposed))(inputs)
    for (node, _), ours, theirs in zip(makers, found, reference.run(inputs), strict=True):
        if deviation(ours, theirs) > LIMIT:
            return named(node)
    return ""


ROUNDING = 2.0**-22
"""Four units of rounding. In another order, the rounding of a sum of a thousand products changes by
about thirty units. The check allows sixteen times (``NOISE``) the observed movement."""

_WEIGHTS = {
    "Conv": (1,),
    "ConvTranspose": (1,),
    "Gemm": (1,),
    "MatMul": (0, 1),
    "LSTM": (1, 2),
    "GRU": (1, 2),
    "RNN": (1, 2),
    "DynamicQuantizeLSTM": (8, 10),
    "DynamicQuantizeMatMul": (2,),
    "MatMulIntegerToFloat": (3,),
    "DequantizeLinear": (1,),
}
"""The operator inputs that are weights, or scales of byte weights. Other constants may be masks,
tables, or extents."""


def move_weights(model: ModelProto, generator: np.random.Generator) -> ModelProto:
    """Copy a model, and move its weights that are factors in sums of products.

    Each number moves by the relative error ``ROUNDING``, up or down at random. ``model`` is not
    changed. Weights are float32 constants that an operator of ``_WEIGHTS`` reads. Scales that a
    ``QuantizeLinear`` reads too are scales of activations, and stay. Constants of other types, and
    constants with numbers that are not finite, stay too.
    """
    copy = deepcopy(model)
    for graph in all_graphs(copy.graph):
        names = {
            node.input[place]
            for node in graph.node
            for place in _WEIGHTS.get(node.op_type, ())
            if place < len(node.input)
        } - {node.input[1] for node in graph.node if node.op_type == "QuantizeLinear"}
        tensors = [tensor for tensor in graph.initializer if tensor.name in names]
        for node in graph.node:
            if node.op_type == "Constant" and node.output[0] in names:
                tensors += [each.t for each in node.attribute if each.name == "value"]
        for tensor in tensors:
            _move_tensor(tensor, generator)
    return copy


def _move_tensor(tensor: TensorProto, generator: np.random.Generator) -> None:
    if tensor.data_type != onnx.TensorProto.FLOAT:
        return
    array = array_of_tensor(tensor)
    if np.isfinite(array).all():
        moved = moved_by_rounding(array, generator, ROUNDING)
        tensor.CopyFrom(onnx.numpy_helper.from_array(moved, tensor.name))

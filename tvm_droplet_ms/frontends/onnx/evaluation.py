# SPDX-License-Identifier: Apache-2.0
"""Evaluate one ONNX node whose inputs are all known."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto

Array = np.ndarray[Any, Any]


def evaluate_node(
    node: NodeProto, inputs: Mapping[str, Array], opsets: Mapping[str, int]
) -> dict[str, Array] | None:
    """Compute the outputs of a node with ONNX Runtime, or with ONNX's reference implementation.

    Models are compared with ONNX Runtime, and the two differ in places (``Resize``, ``MaxUnpool``,
    masks of ``Attention``). ``node``: the node, without subgraphs. ``inputs``: the values of its
    inputs. ``opsets``: the version of each domain. Returns the outputs by name. None if neither
    implementation can compute them, or if an output is not a tensor.
    """
    names = [name for name in node.output if name]
    for evaluate in (_onnx_runtime, _reference):
        # Each lacks some operators, and raises errors of many types for them.
        try:
            values = evaluate(node, names, inputs, opsets)
        except Exception:
            continue
        found = {
            name: np.asarray(value)
            for name, value in zip(names, values, strict=True)
            if isinstance(value, np.ndarray | np.generic)
        }
        if len(found) == len(names) and all(each.dtype != object for each in found.values()):
            return found
    return None


def extents_of(node: NodeProto, extents: Sequence[int]) -> Array:
    """The result of a ``Shape`` or a ``Size`` of a value of known extents."""
    if node.op_type == "Size":
        return np.array(np.prod(extents, dtype=np.int64), np.int64)
    limits = {each.name: each.i for each in node.attribute}
    # A Python slice: negative bounds count from the end, and all bounds are clamped.
    return np.array(extents[limits.get("start", 0) : limits.get("end", len(extents))], np.int64)


def is_quantized_weight(node: NodeProto, values: Array) -> bool:
    """True if a node dequantizes a constant of bytes that may be a factor of a product."""
    is_of_bytes = values.ndim >= 2 and values.dtype in (np.int8, np.uint8)
    return node.op_type == "DequantizeLinear" and is_of_bytes


def _reference(
    node: NodeProto, names: Sequence[str], inputs: Mapping[str, Array], opsets: Mapping[str, int]
) -> Sequence[Any]:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(node, opsets=dict(opsets))
    values: Sequence[Any] = evaluator.run(list(names), dict(inputs))
    return values


def _onnx_runtime(
    node: NodeProto, names: Sequence[str], inputs: Mapping[str, Array], opsets: Mapping[str, int]
) -> Sequence[Any]:
    helper = onnx.helper
    graph = helper.make_graph(
        [node],
        "node",
        [],
        [onnx.ValueInfoProto(name=name) for name in names],
        [onnx.numpy_helper.from_array(value, name) for name, value in inputs.items()],
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    session = open_session(model.SerializeToString(), optimizes=False)
    values: Sequence[Any] = session.run(list(names), {})
    return values


def open_session(
    source: str | bytes,
    threads: int = 1,
    entries: Mapping[str, str] | None = None,
    *,
    optimizes: bool = True,
    weights: Mapping[str, Array] | None = None,
) -> Any:
    """Open a silent session of ONNX Runtime on the CPU. ``entries``: further options by name.

    ``weights``: the values of external initializers by name, which the session does not copy.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    if not optimizes:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for name, value in (entries or {}).items():
        options.add_session_config_entry(name, value)
    if weights:
        shared = list(map(onnxruntime.OrtValue.ortvalue_from_numpy, weights.values()))
        options.add_external_initializers(list(weights), shared)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""The value of one ONNX node whose inputs are all known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import NodeProto

Array = np.ndarray[Any, Any]


def evaluate_node(
    node: NodeProto, inputs: Mapping[str, Array], opsets: Mapping[str, int]
) -> list[Array] | None:
    """Compute the outputs of a node by ONNX's reference implementation, or by ONNX Runtime.

    Parameters
    ----------
    node : NodeProto
        The node, without subgraphs.
    inputs : Mapping[str, ndarray]
        The values of its inputs.
    opsets : Mapping[str, int]
        The version of each domain.

    Returns
    -------
    outputs : list[ndarray] or None
        The outputs. None where neither can compute them, or one is not a tensor.
    """
    for evaluate in (_reference, _onnx_runtime):
        # Either lacks operators, and raises errors of many kinds for them.
        try:
            outputs = evaluate(node, inputs, opsets)
        except Exception:
            continue
        arrays = [np.asarray(each) for each in outputs if isinstance(each, np.ndarray | np.generic)]
        if len(arrays) == len(outputs) and all(each.dtype != object for each in arrays):
            return arrays
    return None


def _reference(
    node: NodeProto, inputs: Mapping[str, Array], opsets: Mapping[str, int]
) -> Sequence[Any]:
    from onnx.reference import ReferenceEvaluator

    outputs: Sequence[Any] = ReferenceEvaluator(node, opsets=dict(opsets)).run(None, dict(inputs))
    return outputs


def _onnx_runtime(
    node: NodeProto, inputs: Mapping[str, Array], opsets: Mapping[str, int]
) -> Sequence[Any]:
    import onnx
    import onnxruntime

    helper = onnx.helper
    graph = helper.make_graph(
        [node],
        "node",
        [],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
        [onnx.numpy_helper.from_array(value, name) for name, value in inputs.items()],
    )
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    outputs: Sequence[Any] = session.run(None, {})
    return outputs

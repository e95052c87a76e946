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
"""Converters of one's own in TVM's ONNX importer, and refusals that name the node.

TVM 0.27 (``python/tvm/relax/frontend/onnx/onnx_frontend.py``) keeps its converters in a dictionary
that a function makes anew for each node, and has no way to add one. Its function ``from_onnx``
looks up the class of the importer by name when it is called, so that a class derived from it can
take its place.
"""

import functools
from typing import Any

import tvm
from tvm.relax.frontend.onnx import onnx_frontend

from .converters import converters
from .refusal import UnsupportedNode


def register_operators() -> None:
    """Make TVM's ``from_onnx`` use the converters of this package. It may be called again.

    A node that cannot be converted then raises ``UnsupportedNode``, with its name and operator.
    """
    if not getattr(onnx_frontend.ONNXGraphImporter, "has_more_operators", False):
        onnx_frontend.ONNXGraphImporter = _importer(onnx_frontend.ONNXGraphImporter)


def _importer(base: Any) -> Any:
    """Derive an importer from TVM's."""
    tvms = functools.cache(onnx_frontend._get_convert_map)

    class Importer(base):  # type: ignore[misc, unused-ignore]
        """TVM's importer, with more converters."""

        has_more_operators = True

        def _check_for_unsupported_ops(self, graph: Any) -> None:
            """Nothing: nodes are refused one by one, by name."""

        def _parse_attr(self, attributes: Any) -> dict[str, Any]:
            """The attributes of a node. TVM's function stops at an empty list."""
            lists = [each for each in attributes if _is_empty_list(each)]
            found = super()._parse_attr([each for each in attributes if each not in lists])
            return {**found, **{each.name: () for each in lists}}

        def _convert_operator(
            self, op_name: str, inputs: Any, attrs: dict[str, Any], opset: int
        ) -> Any:
            node = attrs.get("tvm_custom", {}).get("name") or "without a name"
            shown = (
                f"node {node!r} ({op_name})" if node != "without a name" else f"a {op_name} node"
            )
            convert = converters().get(op_name) or tvms().get(op_name)
            if convert is None:
                raise UnsupportedNode(f"{shown} has an operator that is not supported")
            try:
                function = convert.get_converter(opset)
                result = function(self.bb, inputs, attrs, [self._nodes, self._params])
                if isinstance(result, tvm.relax.Expr):
                    result = self.bb.normalize(result)
            except UnsupportedNode as error:
                raise UnsupportedNode(f"{shown} cannot be imported: {error}") from error
            # TVM's converters raise whatever they meet.
            except Exception as error:
                raise UnsupportedNode(
                    f"{shown} cannot be imported: {_first_line(error)}"
                ) from error
            return result

    return Importer


def _is_empty_list(attribute: Any) -> bool:
    """Whether an attribute is a list without elements."""
    kind = type(attribute)
    lists = {kind.FLOATS: "floats", kind.INTS: "ints", kind.STRINGS: "strings"}
    return attribute.type in lists and not getattr(attribute, lists[attribute.type])


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines or [type(error).__name__])[-1][:300]

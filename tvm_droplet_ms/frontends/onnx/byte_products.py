# SPDX-License-Identifier: Apache-2.0
"""Find the ``MatMulNBits`` products whose rows ONNX Runtime rounds to bytes.

``accuracy_level`` is the minimum accuracy: 4 allows rows of bytes, block by block, and 2 or 3
allow half floats. Rows become bytes here only where ONNX Runtime makes them bytes.
"""

import functools
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .evaluation import open_session

_KIND, _LEVEL, _EXACT, _BYTES = "MatMulNBits", "accuracy_level", 1, 4
_GROUPS = 4
"""The index of ``g_idx``, the input that gives each row its group."""

_LEAST_BLOCK = 16


def computes_in_bytes(attributes: Mapping[str, Any]) -> bool:
    """True if a product with these attributes and without ``g_idx`` rounds rows to bytes."""
    block, depth = int(attributes["block_size"]), int(attributes["K"])
    is_served = int(attributes.get("bits", 4)) in (4, 8) and depth % block == 0
    return int(attributes.get(_LEVEL, 0)) == _BYTES and is_served and block >= _LEAST_BLOCK


def has_lower_levels(model: onnx.ModelProto) -> bool:
    """True if any product in a model may round its rows."""
    return any(_level(node) > _EXACT for node in model.graph.node)


def with_exact_others(model: onnx.ModelProto, *, keeps_bytes: bool) -> onnx.ModelProto:
    """Copy a model, and make the products that round rows exact.

    ``keeps_bytes``: whether products that round rows to bytes keep doing so. A model without
    rounded rows is returned itself.
    """
    if not has_lower_levels(model):
        return model
    copy = type(model)()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        if _level(node) > _EXACT and not (keeps_bytes and _is_of_bytes(node)):
            for each in node.attribute:
                if each.name == _LEVEL:
                    each.i = _EXACT
    return copy


def _level(node: onnx.NodeProto) -> int:
    if node.op_type != _KIND:
        return 0
    return next((int(each.i) for each in node.attribute if each.name == _LEVEL), 0)


def _is_of_bytes(node: onnx.NodeProto) -> bool:
    has_groups = len(node.input) > _GROUPS and bool(node.input[_GROUPS])
    return not has_groups and computes_in_bytes({each.name: each.i for each in node.attribute})


_DEPTH, _COLUMNS, _BLOCK = 64, 16, 32


@functools.cache
def rounds_to_bytes() -> bool:
    """Return whether ONNX Runtime rounds rows to 8-bit integers, if allowed, with packed weights.

    This is also True if ONNX Runtime is missing: then nothing is compared with it.
    """
    if find_spec("onnxruntime") is None:
        return True
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, _DEPTH)).astype("float32")
    weights = {
        "b": rng.integers(0, 256, (_COLUMNS, _DEPTH // _BLOCK, _BLOCK // 2)).astype("uint8"),
        "s": np.ones(_COLUMNS * _DEPTH // _BLOCK, "float32"),
    }

    def product(level: int) -> np.ndarray:
        settings = {"K": _DEPTH, "N": _COLUMNS, "bits": 4, "block_size": _BLOCK, _LEVEL: level}
        node = helper.make_node(_KIND, ["x", "b", "s"], ["y"], domain="com.microsoft", **settings)
        graph = helper.make_graph(
            [node],
            "probe",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, _DEPTH])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, _COLUMNS])],
            [numpy_helper.from_array(array, name) for name, array in weights.items()],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        found: np.ndarray = open_session(model.SerializeToString()).run(None, {"x": x})[0]
        return found

    # ONNX Runtime raises about a dozen error classes. A version without the operator cannot run
    # the model either.
    try:
        exact, rounded = product(1), product(4)
    except Exception:
        return True
    return bool(np.abs(exact - rounded).max() > 1e-4 * np.abs(exact).max())

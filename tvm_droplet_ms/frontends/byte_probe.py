# SPDX-License-Identifier: Apache-2.0
"""Probe the effect of ``accuracy_level`` in ONNX Runtime on this CPU, with a small product."""

import functools

import numpy as np

_DEPTH, _COLUMNS, _BLOCK = 64, 16, 32


@functools.cache
def rounds_to_bytes() -> bool:
    """Return whether ONNX Runtime rounds rows to 8-bit integers, if allowed, with packed weights.

    This is also True if ONNX Runtime is missing: then nothing is compared with it.
    """
    try:
        import onnxruntime
        from onnx import TensorProto, helper, numpy_helper
    except ImportError:
        return True
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, _DEPTH)).astype("float32")
    weights = {
        "b": rng.integers(0, 256, (_COLUMNS, _DEPTH // _BLOCK, _BLOCK // 2)).astype("uint8"),
        "s": np.ones(_COLUMNS * _DEPTH // _BLOCK, "float32"),
    }

    def product(level: int) -> np.ndarray:
        node = helper.make_node(
            "MatMulNBits",
            ["x", "b", "s"],
            ["y"],
            domain="com.microsoft",
            K=_DEPTH,
            N=_COLUMNS,
            bits=4,
            block_size=_BLOCK,
            accuracy_level=level,
        )
        graph = helper.make_graph(
            [node],
            "probe",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, _DEPTH])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, _COLUMNS])],
            [numpy_helper.from_array(array, name) for name, array in weights.items()],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        found: np.ndarray = session.run(None, {"x": x})[0]
        return found

    # ONNX Runtime raises about a dozen error classes. A version without the operator cannot run
    # the model either.
    try:
        exact, rounded = product(1), product(4)
    except Exception:
        return True
    return bool(np.abs(exact - rounded).max() > 1e-4 * np.abs(exact).max())

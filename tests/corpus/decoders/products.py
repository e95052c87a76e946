# SPDX-License-Identifier: Apache-2.0
"""``MatMulNBits`` beside ONNX Runtime."""

from typing import Any

import numpy as np

from .timing import in_turns

BLOCK = 32


def measure(rows: int, extent: int, bits: int, level: int) -> dict[str, Any]:
    """Rows times a square matrix of so many bits, without trials, on a core. Returns a row."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    from tvm_droplet_ms import tune

    rng = np.random.default_rng(0)
    blocks = extent // BLOCK
    weights = {
        "b": rng.integers(0, 256, (extent, blocks, BLOCK * bits // 8)).astype("uint8"),
        "s": (rng.standard_normal(extent * blocks) / 100).astype("float32"),
        "z": rng.integers(0, 256, extent * (blocks * bits // 8)).astype("uint8"),
    }
    node = helper.make_node(
        "MatMulNBits",
        ["x", *weights],
        ["y"],
        domain="com.microsoft",
        K=extent,
        N=extent,
        bits=bits,
        block_size=BLOCK,
        accuracy_level=level,
    )
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, extent]) for name in "xy"
    ]
    graph = helper.make_graph(
        [node],
        "product",
        values[:1],
        values[1:],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    result = tune(model, trials=0, progress=None)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    x = rng.standard_normal((rows, extent)).astype("float32")
    runs = {
        "tune": result.compiled.timer([x]),
        "ONNX Runtime": lambda: session.run(None, {"x": x}),
    }
    row = {"rows": rows, "extent": extent, "bits": bits, "level": level}
    return {**row, "deviation": result.deviation, "secs": in_turns(runs, 51)}

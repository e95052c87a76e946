# SPDX-License-Identifier: Apache-2.0
"""The tables say which program was the fastest, and by how much."""

from .report import tables


def test_the_fastest_other_is_named():
    step = {
        "kind": "Llama, 20M",
        "length": 256,
        "tokens": 1,
        "precision": "bfloat16",
        "minutes": 0,
        "secs": {
            "tune": [0.002, 0.002, 0.002],
            "PyTorch": [0.009, 0.009, 0.009],
            "OpenVINO": [0.003, 0.003, 0.003],
        },
    }
    product = {"rows": 1, "extent": 64, "bits": 4, "level": 0}
    product["secs"] = {"tune": [1e-5] * 3, "ONNX Runtime": [2.5e-5] * 3}
    found = tables([product, step])
    assert "| Llama, 20M, bfloat16 | 256 | 1 | 0 | 2.00 (2.00 to 2.00) |" in found
    assert "| OpenVINO, 3.00 | **1.50** | 9.00 | 3.00 |" in found
    assert "| 1 | 64 x 64 | 4 | 0 | 10 (10 to 10) | 25 | **2.50** |" in found

# SPDX-License-Identifier: Apache-2.0
"""The table of files of float16."""

from .halves import table


def test_ratios_are_medians_of_the_rounds():
    secs = {
        "tune float32": [2e-3, 4e-3, 3e-3],
        "tune float16": [1e-3, 1e-3, 3e-3],
        "ONNX Runtime float16": [5e-3, 6e-3, 3e-3],
        "ONNX Runtime float32": [1.0, 1.0, 1.0],
    }
    lines = table([{"name": "net", "secs": secs}]).splitlines()
    # Of the rounds float32 takes 2, 4 and 1 times as long, and ONNX Runtime 5, 6 and 1 times.
    assert lines[2] == "| net | 3.00 | 1.00 | 2.00 | 5.00 |"
    assert lines[-1] == "Geometric mean over float32: 2.00."

# SPDX-License-Identifier: Apache-2.0
"""Lets the tests here make and run ONNX models."""

import sys
from pathlib import Path

for folder in (Path(__file__).parents[1], Path(__file__).parents[2] / "frontends" / "onnx"):
    sys.path.insert(0, str(folder))

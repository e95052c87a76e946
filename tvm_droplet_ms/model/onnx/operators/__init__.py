# SPDX-License-Identifier: Apache-2.0
"""Operators that TVM's ONNX importer lacks, or gets wrong."""

from .refusal import UnsupportedNode
from .registration import more_operators

__all__ = ["UnsupportedNode", "more_operators"]

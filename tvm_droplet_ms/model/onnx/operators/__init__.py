# SPDX-License-Identifier: Apache-2.0
"""Operators that TVM's ONNX importer lacks, or gets wrong."""

from .refusal import UnknownExtent, UnsupportedNode, WrongExtent
from .registration import more_operators

__all__ = ["UnknownExtent", "UnsupportedNode", "WrongExtent", "more_operators"]

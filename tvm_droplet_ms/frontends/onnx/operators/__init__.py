# SPDX-License-Identifier: Apache-2.0
"""Converters for operators that TVM's ONNX importer lacks or gets wrong."""

from .importer import more_operators
from .operands import UnknownExtent, UnsupportedNode, WrongExtent

__all__ = ["UnknownExtent", "UnsupportedNode", "WrongExtent", "more_operators"]

# SPDX-License-Identifier: Apache-2.0
"""The importer of this package in TVM's place."""

from tvm.relax.frontend.onnx import onnx_frontend

from ....compat.patch import Attribute, Patch
from .importer import derive_importer


def _importer() -> list[Attribute]:
    base = onnx_frontend.ONNXGraphImporter
    return [(onnx_frontend, "ONNXGraphImporter", derive_importer(base))]


more_operators = Patch(_importer)
"""A context in which TVM's ``from_onnx`` uses the converters of this package.

``from_onnx`` looks up the class of its importer by name when it is called. A node that cannot be
converted raises ``UnsupportedNode``, with its name and operator. Outside of the context,
``from_onnx`` is TVM's.
"""

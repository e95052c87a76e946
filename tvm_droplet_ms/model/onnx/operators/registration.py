# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
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

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
"""Drafts: what is believed of a schedule before it is replayed.

The loops of a schedule follow from its decisions (``skeleton``), its symbols from the loops
(``symbols``), and trees that have learned from other workloads score the symbols (``fitted``).
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .draft_file import DraftFileError
    from .gpu_limits import GpuLimits
    from .symbol_draft import SymbolDraft

__all__ = ["DraftFileError", "GpuLimits", "SymbolDraft"]

_MODULES = {
    "DraftFileError": ".draft_file",
    "GpuLimits": ".gpu_limits",
    "SymbolDraft": ".symbol_draft",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)

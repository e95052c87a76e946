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
"""The draft that comes with the package for a target.

The search strategy finds it by the name ``tvm_droplet_ms.find_draft`` of a global function, so that
it need not import this package.
"""

from typing import TYPE_CHECKING

import tvm_ffi

if TYPE_CHECKING:
    from tvm.target import Target

    from ..search_strategy.draft import Draft


def find_draft(target: "Target") -> "Draft | None":
    """Make the draft for a target.

    Parameters
    ----------
    target : Target
        The target to tune for.

    Returns
    -------
    draft : Draft | None
        What the schedules of a CPU are expected to run at; which schedules a GPU can launch, where
        the target says its limits; None for other targets.
    """
    if target.kind.name == "llvm":
        from .symbol_draft import SymbolDraft

        return SymbolDraft.from_file()
    from .gpu_limits import GpuLimits

    return GpuLimits.of(target) if GpuLimits.are_told_by(target) else None


tvm_ffi.register_global_func("tvm_droplet_ms.find_draft", find_draft, override=True)

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
"""Passes that change kernels one by one."""

from collections.abc import Callable

import tvm
from tvm.ir import IRModule
from tvm.tirx import PrimFunc


def kernel_pass(name: str, change: Callable[[PrimFunc], PrimFunc | None]) -> tvm.transform.Pass:
    """Make a pass that changes each kernel by itself.

    Parameters
    ----------
    name : str
        The name of the pass.
    change : Callable[[PrimFunc], PrimFunc | None]
        Changes a kernel; None leaves it as it is. Scheduled kernels are not asked about.
    """

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        changed = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for variable, function in mod.functions_items():
            if isinstance(function, PrimFunc) and "tirx.is_scheduled" not in (function.attrs or {}):
                found = change(function)
                if found is not None:
                    changed.update_func(variable, found)
        return changed

    return tvm.transform.module_pass(run, opt_level=0, name=name)

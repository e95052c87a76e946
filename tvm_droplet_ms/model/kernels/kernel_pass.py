# SPDX-License-Identifier: Apache-2.0
"""Passes that change kernels one by one."""

from collections.abc import Callable

import tvm
from tvm.ir import IRModule
from tvm.tirx import PrimFunc


def kernel_pass(name: str, change: Callable[[PrimFunc], PrimFunc | None]) -> tvm.transform.Pass:
    """Make a pass that changes each kernel by itself.

    ``change``: changes a kernel; None leaves it as it is. Scheduled kernels are not asked about.
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

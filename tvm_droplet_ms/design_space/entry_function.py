# SPDX-License-Identifier: Apache-2.0
"""The kernel of a task's module, whatever its name."""

from typing import Any

from tvm import tirx
from tvm.ir import IRModule


def entry_name(mod: IRModule) -> str:
    """The name of the only kernel of a module: ``tune_tir`` says ``main``, a task may not."""
    items = mod.functions.items()
    names = [str(var.name_hint) for var, func in items if isinstance(func, tirx.PrimFunc)]
    return names[0] if len(names) == 1 else "main"


def entry_function(mod: IRModule) -> Any:
    """The only kernel of a module."""
    return mod[entry_name(mod)]

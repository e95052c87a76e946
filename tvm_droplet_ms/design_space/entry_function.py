# SPDX-License-Identifier: Apache-2.0
"""Finds the kernel of a task's module regardless of its name."""

from typing import Any

from tvm import tirx
from tvm.ir import IRModule


def entry_name(mod: IRModule) -> str:
    """Return the name of a module's only kernel: ``main`` in ``tune_tir``, any name in a task."""
    items = mod.functions.items()
    names = [str(var.name_hint) for var, func in items if isinstance(func, tirx.PrimFunc)]
    return names[0] if len(names) == 1 else "main"


def entry_function(mod: IRModule) -> Any:
    """Return a module's only kernel."""
    return mod[entry_name(mod)]

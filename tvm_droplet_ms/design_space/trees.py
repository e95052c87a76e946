# SPDX-License-Identifier: Apache-2.0
"""Finds the kernel of a task's module regardless of its name, and nodes in a kernel."""

from typing import Any

from tvm_ffi import structural_equal
from tvm_ffi.structural import structural_walk

from tvm import tirx
from tvm.ir import IRModule
from tvm.ir.expr import TensorLoad
from tvm.ir.prim.expr import Add, Mul
from tvm.s_tir import SBlock

_FIELDS = (
    *("iter_vars", "reads", "writes", "name_hint", "body", "init", "alloc_buffers"),
    *("match_buffers", "annotations", "span"),
)
"""The fields of a block, in the order of the constructor."""


def entry_name(mod: IRModule) -> str:
    """Return the name of a module's only kernel: ``main`` in ``tune_tir``, any name in a task."""
    items = mod.functions.items()
    names = [str(var.name_hint) for var, func in items if isinstance(func, tirx.PrimFunc)]
    return names[0] if len(names) == 1 else "main"


def entry_function(mod: IRModule) -> Any:
    """Return a module's only kernel."""
    return mod[entry_name(mod)]


def nodes_in(tree: Any, kinds: Any) -> list[Any]:
    """Return the nodes of a kind, or of several, in a statement, an expression or a list."""
    found: list[Any] = []
    structural_walk(tree, (kinds, found.append))
    return found


def block_like(block: Any, **changes: Any) -> SBlock:
    """Make a block with the fields of another one, except ``changes``."""
    return SBlock(*(changes.get(name, getattr(block, name)) for name in _FIELDS))


def added_product(block: Any) -> Any:
    """Return the product that a block adds to the element that it writes; None for other blocks."""
    total = getattr(block.body, "value", None)
    if block.init is None or not isinstance(total, Add) or not isinstance(total.b, Mul):
        return None
    before = total.a
    is_sum = isinstance(before, TensorLoad) and before.source.same_as(block.body.buffer)
    is_same = is_sum and structural_equal(before.indices, block.body.indices)
    return total.b if is_same else None


def mentions(tree: Any, variable: Any) -> bool:
    """Return whether a statement, an expression or a list contains a variable."""
    return any(each.same_as(variable) for each in nodes_in(tree, tirx.Var))

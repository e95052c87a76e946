# SPDX-License-Identifier: Apache-2.0
"""A pass that saves and restores the tile configuration of a thread around each kernel."""

from typing import Any

from tvm_ffi.structural import structural_map, structural_walk

import tvm
from tvm import tirx
from tvm.ir import IRModule, StringImm
from tvm.ir.expr import Call
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import Evaluate, For, ForKind, PrimFunc, SeqStmt

from .tile_configuration import ASK, FUNCTION_PREFIX
from .tile_shapes import ROW_BYTES

_NAME = "kept_tiles"


def KeepTiles() -> tvm.transform.Pass:
    """Make a pass that saves the tile configuration before a kernel and restores it afterward.

    oneDNN remembers the configuration that it last set on a thread and does not set it again
    (``amx_tile_lazy_configure``). It hits an illegal instruction if another library left a
    different configuration. The pass asks Linux for the tiles first. A single-threaded kernel with
    one configuration sets it once, instead of before each group of sums. The pass applies to
    scheduled modules, and leaves kernels without tiles unchanged.
    """

    def run(mod: IRModule, _context: tvm.transform.PassContext) -> IRModule:
        changed = IRModule(dict(mod.functions_items()), attrs=mod.attrs)
        for variable, function in mod.functions_items():
            if isinstance(function, PrimFunc):
                changed.update_func(variable, _keeping(function))
        return changed

    return tvm.transform.module_pass(run, opt_level=0, name="KeepTiles")


def _keeping(function: PrimFunc) -> PrimFunc:
    names = _configurations(function)
    root: Any = function.body
    if not names or not isinstance(root, SBlockRealize):
        return function
    block = root.block
    if any(str(buffer.name) == _NAME for buffer in block.alloc_buffers):
        return function
    kept = tirx.decl_buffer((ROW_BYTES,), "uint8", _NAME)
    asking = Evaluate(tirx.call_extern("void", ASK))
    before, body = [asking, _call("sttilecfg", kept)], block.body
    if len(names) == 1 and not _is_parallel(body):
        (name,) = names
        before.append(Evaluate(tirx.call_extern("void", name)))
        body = structural_map(body, (Evaluate, _without_configuration))
    changed = SBlock(
        block.iter_vars,
        block.reads,
        block.writes,
        block.name_hint,
        SeqStmt([*before, body, _call("ldtilecfg", kept)]),
        block.init,
        [*block.alloc_buffers, kept],
        block.match_buffers,
        block.annotations,
    )
    return function.with_body(SBlockRealize(root.iter_values, root.predicate, changed))


def _call(name: str, kept: Any) -> Evaluate:
    # Not ``address_of``: ``CompactBufferAllocation`` would leave one byte.
    address = kept.access_ptr("rw")
    return Evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{name}", address))


def _configurations(function: PrimFunc) -> set[str]:
    """Return the names of the configuration functions that a kernel calls."""
    calls: list[Any] = []
    structural_walk(function.body, (Call, calls.append))
    return {name for name in map(_callee, calls) if name is not None}


def _callee(call: Any) -> str | None:
    """Return the name of the configuration function in a call; None for other calls."""
    first = call.args[0] if len(call.args) else None
    name = str(first.value) if isinstance(first, StringImm) else ""
    return name if name.startswith(FUNCTION_PREFIX) else None


def _without_configuration(statement: Evaluate) -> Evaluate:
    call = statement.value
    is_one = isinstance(call, Call) and _callee(call) is not None
    return Evaluate(tirx.const(0, "int32")) if is_one else statement


def _is_parallel(body: Any) -> bool:
    loops: list[Any] = []
    structural_walk(body, (For, loops.append))
    return any(loop.kind == ForKind.PARALLEL for loop in loops)

# SPDX-License-Identifier: Apache-2.0
"""The tile configuration of a kernel: the function that loads it, and the pass that keeps it.

The number of rows and the bytes per row of each tile are thread state (``ldtilecfg``). Setting it
takes 70 ns and reading it takes 6 ns. So a kernel reads the state before each group of sums, and
sets it only if it differs. No kernel depends on earlier kernels or on its thread.

Linux lets a process use the tiles after ``arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)``. A kernel
makes this request once, so a delivered library needs no other code. If Linux refuses, as on another
CPU, the process ends with a message instead of an illegal instruction.
"""

from typing import Any

from tvm_ffi.structural import structural_map

import tvm
from tvm import tirx
from tvm.ir import StringImm
from tvm.ir.expr import Call
from tvm.s_tir import SBlockRealize
from tvm.tirx import Evaluate, For, ForKind, PrimFunc, SeqStmt
from tvm.tirx.transform import prim_func_pass

from ..trees import block_like, nodes_in
from .tile_shapes import ROW_BYTES, TILES, MacroTile

_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18
"""The numbers of the Linux system call, of its function, and of the requested state."""

_WRITE, _STDERR = 1, 2

REFUSED = (
    "tvm_droplet_ms: this library was tuned for a CPU with matrix tiles (AMX), which Linux does "
    "not offer to this process: tune the model again on this machine\n"
)
"""The message for processes that cannot use the tiles."""

ASK = "tvm_droplet_ms_ask_tiles"
"""The name of the function that asks Linux for the tiles."""

FUNCTION_PREFIX = "tvm_droplet_ms_tiles_"
"""The prefix of the names of configuration functions."""


def configuration(tile: MacroTile, element: int) -> bytes:
    """Return the 64 bytes of a configuration: tiles of sums, then of rows, then of columns.

    ``element``: the bytes of an element of a factor. Source: Intel's manual, volume 1, section
    18.4.
    """
    held_rows, _ = tile.held
    layout = bytearray(ROW_BYTES)
    layout[0] = 1
    for number in range(TILES):
        rows, width = tile.depth * element // 4, 4 * tile.lanes
        if number < tile.sums + held_rows:
            rows = tile.rows
        if tile.sums <= number < tile.sums + held_rows:
            width = tile.depth * element
        layout[16 + 2 * number] = width
        layout[48 + number] = rows
    return bytes(layout)


def function_name(tile: MacroTile, element: int) -> str:
    """Return the name of the function that loads a configuration."""
    layout = configuration(tile, element)
    return f"{FUNCTION_PREFIX}{layout[16:32:2].hex()}_{layout[48:56].hex()}"


def function_code(element: int, *tiles: MacroTile) -> str:
    """Return the LLVM IR functions for some tiles, on one line, because each record has it."""
    names = {function_name(tile, element): configuration(tile, element) for tile in tiles}
    declared = (
        "declare void @llvm.x86.sttilecfg(ptr) declare void @llvm.x86.ldtilecfg(ptr) "
        "declare void @abort()"
    )
    functions = [_function(name, layout) for name, layout in names.items()]
    return " ".join([declared, _asking(), *functions])


def _asking() -> str:
    """Return the function that asks Linux for the tiles, once per process and kernel."""
    text = "".join(f"\\{byte:02x}" for byte in REFUSED.encode())
    return " ".join(
        [
            f"@{ASK}_done = internal global i8 0",
            f'@{ASK}_text = private constant [{len(REFUSED)} x i8] c"{text}"',
            f"define void @{ASK}() {{",
            f"entry: %done = load i8, ptr @{ASK}_done",
            "%is_done = icmp ne i8 %done, 0",
            "br i1 %is_done, label %end, label %ask",
            f"ask: {_system_call('%answer', _ARCH_PRCTL, _REQUEST, _TILE_DATA, 0)}",
            "%is_allowed = icmp eq i64 %answer, 0",
            "br i1 %is_allowed, label %keep, label %refuse",
            f"keep: store i8 1, ptr @{ASK}_done",
            "br label %end",
            f"refuse: %address = ptrtoint ptr @{ASK}_text to i64",
            _system_call("%written", _WRITE, _STDERR, "%address", len(REFUSED)),
            "call void @abort()",
            "unreachable",
            "end: ret void }",
        ]
    )


def _system_call(result: str, number: int, *arguments: int | str) -> str:
    registers = "={rax},{rax},{rdi},{rsi},{rdx},~{rcx},~{r11},~{memory}"
    values = ", ".join(f"i64 {value}" for value in (number, *arguments))
    return f'{result} = call i64 asm sideeffect "syscall", "{registers}"({values})'


def _function(name: str, layout: bytes) -> str:
    text = "".join(f"\\{byte:02x}" for byte in layout)
    return " ".join(
        [
            f'@{name}_layout = private constant [{ROW_BYTES} x i8] c"{text}", align {ROW_BYTES}',
            f"define void @{name}() {{",
            f"entry: %now = alloca [{ROW_BYTES} x i8], align {ROW_BYTES}",
            "call void @llvm.x86.sttilecfg(ptr %now)",
            f"%a = load <8 x i64>, ptr %now, align {ROW_BYTES}",
            f"%b = load <8 x i64>, ptr @{name}_layout, align {ROW_BYTES}",
            "%differ = icmp ne <8 x i64> %a, %b",
            "%bits = bitcast <8 x i1> %differ to i8",
            "%same = icmp eq i8 %bits, 0",
            "br i1 %same, label %done, label %set",
            f"set: call void @{ASK}()",
            f"call void @llvm.x86.ldtilecfg(ptr @{name}_layout)",
            "br label %done",
            "done: ret void }",
        ]
    )


_NAME = "kept_tiles"


def KeepTiles() -> tvm.transform.Pass:
    """Make a pass that saves the tile configuration before a kernel and restores it afterward.

    oneDNN remembers the configuration that it last set on a thread and does not set it again
    (``amx_tile_lazy_configure``). It hits an illegal instruction if another library left a
    different configuration. The pass asks Linux for the tiles first. A single-threaded kernel with
    one configuration sets it once, instead of before each group of sums. The pass applies to
    scheduled modules, and leaves kernels without tiles unchanged.
    """

    return prim_func_pass(_keeping, opt_level=0, name="KeepTiles")


def _keeping(function: PrimFunc, _mod: Any, _context: Any) -> PrimFunc:
    calls = nodes_in(function.body, Call)
    names = {name for name in map(_callee, calls) if name is not None}
    root: Any = function.body
    if not names or not isinstance(root, SBlockRealize):
        return function
    block = root.block
    if any(str(buffer.name) == _NAME for buffer in block.alloc_buffers):
        return function
    kept = tirx.decl_buffer((ROW_BYTES,), "uint8", _NAME)
    asking = Evaluate(tirx.call_extern("void", ASK))
    before, body = [asking, _call("sttilecfg", kept)], block.body
    is_parallel = any(loop.kind == ForKind.PARALLEL for loop in nodes_in(body, For))
    if len(names) == 1 and not is_parallel:
        (name,) = names
        before.append(Evaluate(tirx.call_extern("void", name)))
        body = structural_map(body, (Evaluate, _without_configuration))
    changed = block_like(
        block,
        body=SeqStmt([*before, body, _call("ldtilecfg", kept)]),
        alloc_buffers=[*block.alloc_buffers, kept],
    )
    return function.with_body(SBlockRealize(root.iter_values, root.predicate, changed))


def _call(name: str, kept: Any) -> Evaluate:
    # Not ``address_of``: ``CompactBufferAllocation`` would leave one byte.
    address = kept.access_ptr("rw")
    return Evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{name}", address))


def _callee(call: Any) -> str | None:
    """Return the name of the configuration function in a call; None for other calls."""
    first = call.args[0] if len(call.args) else None
    name = str(first.value) if isinstance(first, StringImm) else ""
    return name if name.startswith(FUNCTION_PREFIX) else None


def _without_configuration(statement: Evaluate) -> Evaluate:
    call = statement.value
    is_one = isinstance(call, Call) and _callee(call) is not None
    return Evaluate(tirx.const(0, "int32")) if is_one else statement

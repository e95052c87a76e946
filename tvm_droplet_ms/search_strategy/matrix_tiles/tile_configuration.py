# SPDX-License-Identifier: Apache-2.0
"""The configuration of the tiles of a kernel, and the function that makes it the thread's.

The rows and the bytes in a row of each tile are state of the thread (``ldtilecfg``), which takes
70 ns to set and 6 ns to read. So a kernel reads it before each group of sums, and sets it where it
is another one: no kernel depends on what ran before it, or on the thread that runs it.

Linux lets a process use the tiles after ``arch_prctl(ARCH_REQ_XCOMP_PERM, XTILEDATA)``. The kernel
asks for it where it sets a configuration, so that a delivered library needs no other code.
"""

from .tile_shapes import ROW_BYTES, TILES, MacroTile

_ARCH_PRCTL, _REQUEST, _TILE_DATA = 158, 0x1023, 18
"""The number of Linux's system call, of its function, and of the state that is asked for."""


FUNCTION_PREFIX = "tvm_droplet_ms_tiles_"
"""How the names of the functions begin that set a configuration."""


def configuration(tile: MacroTile, element: int) -> bytes:
    """The 64 bytes of a configuration: tiles of sums first, then of rows, then of columns.

    ``element``: the bytes of a factor. Source: Intel's manual, volume 1, section 18.4.
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
    """The name of the function that makes a configuration the thread's."""
    layout = configuration(tile, element)
    return f"{FUNCTION_PREFIX}{layout[16:32:2].hex()}_{layout[48:56].hex()}"


def function_code(element: int, *tiles: MacroTile) -> str:
    """The functions of some tiles, in LLVM's language, on one line: it is in each record."""
    names = {function_name(tile, element): configuration(tile, element) for tile in tiles}
    declared = "declare void @llvm.x86.sttilecfg(ptr) declare void @llvm.x86.ldtilecfg(ptr)"
    return " ".join([declared, *(_function(name, layout) for name, layout in names.items())])


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
            'set: %asked = call i64 asm sideeffect "syscall", '
            '"={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory}"'
            f"(i64 {_ARCH_PRCTL}, i64 {_REQUEST}, i64 {_TILE_DATA})",
            f"call void @llvm.x86.ldtilecfg(ptr @{name}_layout)",
            "br label %done",
            "done: ret void }",
        ]
    )

# SPDX-License-Identifier: Apache-2.0
"""Tensor intrinsics for matrix tiles: zeros, loads, products and stores.

The tiles are buffers to TVM and registers to LLVM. The offset of an access gives the register, so
loops over tiles must be unrolled. The buffers themselves never hold data.

There are too many intrinsics to register all of them. Each is registered when it is needed, under a
name that fully describes it. ``register_named`` registers the intrinsics that a record names.
"""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

from ..dot_products.dot_intrinsics import HALF
from .kept_tiles import function_name
from .tile_shapes import MULTIPLY, TileKind, named_kinds

SCOPE = "local"
"""The storage scope of tile buffers."""

_BITS = {HALF: "uint16"}
"""The dtype that ``BF16StorageLegalize`` gives a buffer; addresses must use the same dtype."""


def register(kind: TileKind, what: str) -> str:
    """Register one of ``INTRINSICS`` for some tiles if missing, and return its name."""
    name = kind.name(what)
    if TensorIntrin.get(name, allow_missing=True) is None:
        make = INTRINSICS[what]
        description, implementation = (_function(make, kind, full) for full in (True, False))
        TensorIntrin.register(name, description, implementation)
    return name


def register_named(text: str) -> bool:
    """Register the intrinsics named in a text, such as a record; return whether any is new."""
    is_new = False
    for name, what, kind in named_kinds(text):
        if TensorIntrin.get(name, allow_missing=True) is None:
            register(kind, what)
            is_new = True
    return is_new


def _function(make: Callable[..., None], kind: TileKind, full: bool) -> tirx.PrimFunc:
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            make(kind, full)
        return builder.get()


def _argument(kind: TileKind, name: str, shape: Sequence[int], dtype: str, scope: str) -> Any:
    strides = [tirx.Var(f"{name}{n}", kind.index) for n in range(len(shape) - 1)]
    one = T.Buffer(shape, dtype, strides=[*strides, 1], scope=scope, offset_factor=1)
    return T.arg(name, one)


def _all(extents: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(0, extent) for extent in extents)


def _zeros(kind: TileKind, full: bool) -> None:
    """Configure the tiles for the kernel, and set all tiles of sums to zero."""
    one = kind.tile
    outer = [one.panels, one.groups, 1] if one.apart else [one.lines, one.groups, one.panels]
    shape = [outer[0], outer[1] * one.rows, outer[2] * one.lanes][outer[0] == 1 :]
    sums = _argument(kind, "C", shape, kind.sums, SCOPE)
    with T.sblock("root"):
        T.reads()
        T.writes(sums[_all(shape)])
        if not full:
            T.evaluate(tirx.call_extern("void", function_name(one, kind.element)))
            for number in range(one.sums):
                _call("tilezero", T.uint8(number))
            return
        with T.grid(*(n for n in outer if n > 1), one.rows, one.lanes) as loops:
            *several, row, lane = loops
            line, group, panel = (several.pop(0) if extent > 1 else None for extent in outer)
            with T.sblock("zeros"):
                whole = shape[-2], _joined(group, row, one.rows)
                before = [] if line is None else [(outer[0], line)]
                # The axes keep the order of the product's block: rows before separate panels.
                places = [whole, *before] if one.apart else [*before, whole]
                axes = [T.axis.spatial(*place) for place in places]
                last = T.axis.spatial(shape[-1], _joined(panel, lane, one.lanes))
                at = [*(axes[::-1] if one.apart else axes), last]
                T.buffer_store(sums, tirx.const(0, kind.sums), at)


def _joined(outer: Any, inner: Any, extent: int) -> Any:
    return inner if outer is None else outer * extent + inner


def _stores(kind: TileKind, full: bool) -> None:
    """Store a tile of sums to memory."""
    shape, ones = [kind.tile.rows, kind.tile.lanes], [1] * kind.middle
    spread = [shape[0], *ones, shape[1]]
    sums = _argument(kind, "C", shape, kind.sums, SCOPE)
    memory = _argument(kind, "D", spread, kind.sums, "global")
    with T.sblock("root"):
        T.reads(sums[_all(shape)])
        T.writes(memory[_all(spread)])
        if full:
            with T.grid(*shape) as (i, j), T.sblock("copy"):
                row, lane = T.axis.remap("SS", [i, j])
                T.buffer_store(memory, sums[row, lane], [row, *(0 for _ in ones), lane])
        else:
            address = T.address_of(memory[(0,) * len(spread)])
            _call("tilestored64", _sum(kind, sums), address, _step(memory, 4))


def _rows(kind: TileKind, full: bool) -> None:
    """Load a tile of rows from memory."""
    one, ones = kind.tile, [1] * kind.middle
    shape = [one.rows, one.depth]
    spread = [(one.rows - 1) * kind.stride + 1, *ones, one.depth]
    if kind.pitch:
        spread = [(one.rows - 1) * kind.pitch + one.depth]
    memory = _argument(kind, "A", spread, kind.shared, "global")
    tiles = _argument(kind, "B", shape, kind.shared, SCOPE)
    with T.sblock("root"):
        T.reads(memory[_all(spread)])
        T.writes(tiles[_all(shape)])
        if full:
            with T.grid(*shape) as (i, k), T.sblock("copy"):
                row, step = T.axis.remap("SS", [i, k])
                at = [row * kind.stride, *(0 for _ in ones), step]
                if kind.pitch:
                    at = [row * kind.pitch + step]
                T.buffer_store(tiles, memory[tuple(at)], [row, step])
        else:
            step = tirx.const(kind.pitch * kind.element, "int64")
            if not kind.pitch:
                step = _step(memory, kind.stride * kind.element)
            _call("tileloadd64", _row_tile(kind, tiles), _address(memory), step)


def _columns(kind: TileKind, full: bool) -> None:
    """Load a tile of columns from memory."""
    shape = [kind.tile.depth // kind.group, kind.tile.lanes, kind.group]
    memory = _argument(kind, "A", shape, kind.own, "global")
    tiles = _argument(kind, "B", shape, kind.own, SCOPE)
    with T.sblock("root"):
        T.reads(memory[_all(shape)])
        T.writes(tiles[_all(shape)])
        if full:
            with T.grid(*shape) as loops, T.sblock("copy"):
                at = list(T.axis.remap("SSS", list(loops)))
                T.buffer_store(tiles, memory[tuple(at)], at)
        else:
            step = _step(memory, kind.element)
            _call("tileloadd64", _column_tile(kind, tiles), _address(memory), step)


def _products(kind: TileKind, full: bool) -> None:
    """Add the product of a tile of rows and a tile of columns to a tile of sums."""
    one = kind.tile
    extents = one.rows, one.lanes, one.depth
    rows = _argument(kind, "A", [one.rows, one.depth], kind.shared, SCOPE)
    shape = [one.depth // kind.group, one.lanes, kind.group]
    columns = _argument(kind, "B", shape, kind.own, SCOPE)
    sums = _argument(kind, "C", [one.rows, one.lanes], kind.sums, SCOPE)
    with T.sblock("root"):
        T.reads(sums[_all(extents[:2])], rows[_all((one.rows, one.depth))], columns[_all(shape)])
        T.writes(sums[_all(extents[:2])])
        if full:
            with T.grid(*extents) as (i, j, k), T.sblock("update"):
                row, lane, step = T.axis.remap("SSR", [i, j, k])
                first = rows[row, step].astype(kind.sums)
                place = step // kind.group, lane, step % kind.group
                second = columns[place].astype(kind.sums)
                T.buffer_store(sums, sums[row, lane] + first * second, [row, lane])
        else:
            tiles = _sum(kind, sums), _row_tile(kind, rows), _column_tile(kind, columns)
            _call(MULTIPLY[kind.shared, kind.own], *tiles)


INTRINSICS: dict[str, Callable[[TileKind, bool], None]] = {
    "zeros": _zeros,
    "stores": _stores,
    "rows": _rows,
    "columns": _columns,
    "products": _products,
}
"""Builders by intrinsic name, for the description (flag set) or the implementation."""


def _call(name: str, *arguments: Any) -> None:
    T.evaluate(T.call_llvm_intrin("void", f"llvm.x86.{name}", *arguments))


def _sum(kind: TileKind, sums: Any) -> Any:
    """Return the register of a tile of sums; a buffer row spans all panels."""
    width, offset = sums.strides[-2], sums.elem_offset
    of_rows = offset // (width * kind.tile.rows) * (width // kind.tile.lanes)
    return tirx.Cast("uint8", of_rows + offset % width // kind.tile.lanes)


def _row_tile(kind: TileKind, tiles: Any) -> Any:
    number = tiles.elem_offset // (kind.tile.rows * kind.tile.depth)
    return tirx.Cast("uint8", kind.tile.sums + number)


def _column_tile(kind: TileKind, tiles: Any) -> Any:
    number = tiles.elem_offset // (kind.tile.lanes * kind.tile.depth)
    return tirx.Cast("uint8", kind.tile.sums + kind.tile.held[0] + number)


def _step(memory: Any, element: int) -> Any:
    """Return the row stride in bytes."""
    return tirx.Cast("int64", memory.strides[0]) * element


def _address(memory: Any) -> Any:
    """Return the address of a part of a buffer.

    ``address_of`` does not work here: ``BF16ComputeLegalize`` turns a bfloat16 buffer into float32
    if no other expression takes its address.
    """
    dtype = str(memory.dtype)
    kind = tirx.type_annotation(_BITS.get(dtype, dtype))
    arguments = kind, memory.data, memory.elem_offset, 1, 1
    return tirx.call_intrin("handle", "tirx.tvm_access_ptr", *arguments)

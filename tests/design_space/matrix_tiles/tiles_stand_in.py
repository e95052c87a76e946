# SPDX-License-Identifier: Apache-2.0
"""Runs kernels of matrix tiles anywhere: intrinsics are calls of C functions that keep tiles."""

import ctypes
import functools
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from tvm_ffi.structural import structural_map

import tvm
from tvm import tirx
from tvm.ir import IRModule, PrimType, StringImm
from tvm.ir.expr import Call
from tvm.target import Target
from tvm.target.codegen import llvm_get_intrinsic_name
from tvm.tirx import Evaluate, For
from tvm_droplet_ms.design_space.dot_products.dot_rule import IMPORTED
from tvm_droplet_ms.design_space.matrix_tiles.kept_tiles import (
    ASK,
    FUNCTION_PREFIX,
    KeepTiles,
)
from tvm_droplet_ms.host import host_target

TILES = Target({"kind": "llvm", "mcpu": "sapphirerapids", "num-cores": 1})
"""A target with matrix tiles, whether or not this CPU has them."""

_SOURCE = Path(__file__).parent / "tiles_stand_in.c"


def _replaced(statement):
    call = statement.value
    if not isinstance(call, Call) or not len(call.args):
        return statement
    first, *arguments = call.args
    if isinstance(first, StringImm) and first.value.startswith(FUNCTION_PREFIX):
        words = first.value.removeprefix(FUNCTION_PREFIX).split("_")
        parts = [int.from_bytes(bytes.fromhex(word), "big", signed=True) for word in words]
        numbers = [tirx.const(part, "int64") for part in parts]
        return Evaluate(tirx.call_extern("void", "stand_in_configure", *numbers))
    if isinstance(first, StringImm) and first.value == ASK:
        return Evaluate(tirx.const(0, "int32"))
    if str(call.op.name) != "tirx.call_llvm_intrin":
        return statement
    name = str(llvm_get_intrinsic_name(int(first))).removeprefix("llvm.x86.")
    if not name.startswith(("tile", "tdp", "ldtile", "sttile")):
        return statement
    numbers = [tirx.Cast("int32", each) if _is_number(each) else each for each in arguments]
    return Evaluate(tirx.call_extern("void", f"stand_in_{name}", *numbers))


def _is_number(argument):
    """True for the number of a tile."""
    return isinstance(argument.ty, PrimType) and str(argument.ty) == "uint8"


def _without_code(loop):
    kept = {name: value for name, value in loop.annotations.items() if name != IMPORTED}
    return For(
        loop.loop_var, loop.min, loop.extent, loop.kind, loop.body, loop.thread_binding, kept
    )


def on_stand_in(mod):
    """A scheduled module whose intrinsics are calls of the stand-in."""
    mod = KeepTiles()(mod)
    function = mod["main"]
    body = structural_map(function.body, (Evaluate, _replaced))
    body = structural_map(body, (For, _without_code))
    return IRModule({"main": function.with_body(body)})


@functools.cache
def _object_file():
    folder = tempfile.mkdtemp()
    path = str(Path(folder, "stand_in.o"))
    options = ["-c", "-fPIC", "-O1", "-ffp-contract=off"]
    subprocess.run(["cc", *options, str(_SOURCE), "-o", path], check=True)
    return path


def run(mod, arrays, shape, dtype, before=None, reads_after=False):
    """Run a scheduled module on the stand-in, on this machine's CPU.

    Returns the result, the number of products of tiles, and, where asked for, the configuration
    that the kernel leaves behind; ``before``: the one that it begins with.
    """
    target = host_target()
    names = [str(name) for name in target.attrs.get("mattr", []) if "amx" not in str(name)]
    plain = Target({**target.export(), "mattr": names, "num-cores": 1})
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "kernel.so"))
        library = tvm.tirx.build(on_stand_in(mod), target=plain)
        library.export_library(path, addons=[_object_file()])
        loaded, own = tvm.runtime.load_module(path), ctypes.CDLL(path)
        if before is not None:
            own.stand_in_ldtilecfg(before)
        out = tvm.runtime.empty(shape, dtype)
        loaded["main"](*map(tvm.runtime.tensor, arrays), out)
        assert own.stand_in_faults() == 0
        found = np.array(out.numpy()), own.stand_in_products()
        if not reads_after:
            return found
        after = ctypes.create_string_buffer(64)
        own.stand_in_sttilecfg(after)
        return *found, after.raw


def set_on_cpu(layout):
    """Configure the tiles of this thread, on a CPU that has them."""
    _cpu_tiles().set_tiles(ctypes.create_string_buffer(layout, 64))


def get_on_cpu():
    """The configuration of the tiles of this thread."""
    found = ctypes.create_string_buffer(64)
    _cpu_tiles().get_tiles(found)
    return found.raw


@functools.cache
def _cpu_tiles():
    folder = tempfile.mkdtemp()
    source, path = Path(folder, "tiles.c"), Path(folder, "tiles.so")
    source.write_text(
        'void set_tiles(void *p) { __asm__ volatile("ldtilecfg (%0)" :: "r"(p) : "memory"); }\n'
        'void get_tiles(void *p) { __asm__ volatile("sttilecfg (%0)" :: "r"(p) : "memory"); }\n'
    )
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(path)], check=True)
    return ctypes.CDLL(str(path))

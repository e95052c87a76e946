# SPDX-License-Identifier: Apache-2.0
"""Tensor intrinsics that sum the lanes of a vector by repeated halving.

A sequential sum is a chain of dependent additions, and LLVM may not reorder float additions.
"""

from typing import Any

from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T


def lane_sum(lanes: int) -> str:
    """Return the name of the intrinsic for a vector of 4, 8 or 16 lanes."""
    return f"tvm_droplet_ms.sum_of_{lanes}_lanes"


def register_lane_sums() -> None:
    """Register the intrinsics that are not registered yet."""
    for lanes in (4, 8, 16):
        name = lane_sum(lanes)
        if TensorIntrin.get(name, allow_missing=True) is None:
            TensorIntrin.register(name, _sum(lanes, is_one=False), _sum(lanes, is_one=True))


def _sum(lanes: int, *, is_one: bool) -> tirx.PrimFunc:
    """Add the sum of the lanes to a number; ``is_one``: in one statement."""
    with IRBuilder() as builder:
        with T.prim_func(s_tir=True):
            items, total = (
                T.arg(name, T.Buffer((extent,), "float32", offset_factor=1))
                for name, extent in (("A", lanes), ("C", 1))
            )
            with T.sblock("root"):
                T.reads(total[0:1], items[0:lanes])
                T.writes(total[0:1])
                if is_one:
                    halves = _halved(items.vload([0], f"float32x{lanes}"), lanes)
                    T.buffer_store(total, total[0] + halves, [0])
                else:
                    with T.grid(lanes) as i, T.sblock("update"):
                        lane = T.axis.remap("R", [i])
                        T.buffer_store(total, total[0] + items[lane], [0])
        return builder.get()


def _halved(vector: Any, lanes: int) -> Any:
    """Return the sum of a vector's lanes: repeatedly add the upper half to the lower half."""
    while lanes > 2:
        lanes //= 2
        kind = f"float32x{lanes}"
        vector = tirx.vectorlow(kind, vector) + tirx.vectorhigh(kind, vector)
    first, second = (tirx.Shuffle([vector], [tirx.const(n, "int32")]) for n in range(2))
    return first + second

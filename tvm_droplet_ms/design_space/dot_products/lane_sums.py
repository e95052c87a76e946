# SPDX-License-Identifier: Apache-2.0
"""Tensor intrinsics that add up the lanes of a vector by halves.

Written one by one they are a chain of additions. LLVM may not reorder those of floats by itself.
"""

from typing import Any

from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T


def lane_sum(lanes: int) -> str:
    """The name of the intrinsic for a vector of so many lanes: 4, 8 or 16."""
    return f"tvm_droplet_ms.sum_of_{lanes}_lanes"


def register_lane_sums() -> None:
    """Register the intrinsics, unless they are."""
    for lanes in (4, 8, 16):
        name = lane_sum(lanes)
        if TensorIntrin.get(name, allow_missing=True) is None:
            TensorIntrin.register(name, _sum(lanes, is_one=False), _sum(lanes, is_one=True))


def _sum(lanes: int, *, is_one: bool) -> tirx.PrimFunc:
    """The sum of some lanes, added to a number; ``is_one``: as one statement."""
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
    """The sum of a vector's lanes: each half of them is added to the other one."""
    while lanes > 2:
        lanes //= 2
        kind = f"float32x{lanes}"
        vector = tirx.vectorlow(kind, vector) + tirx.vectorhigh(kind, vector)
    first, second = (tirx.Shuffle([vector], [tirx.const(n, "int32")]) for n in range(2))
    return first + second

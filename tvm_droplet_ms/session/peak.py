# SPDX-License-Identifier: Apache-2.0
"""The peak rate of float32 multiplications and additions on a core of this machine.

It is measured with a register tile of a matrix product whose operands stay in the L1 cache: the
inner loop of every fast convolution and matrix product. NumPy's BLAS is not a substitute: it
reaches 94% of this rate on a Zen 4 core, and 51% on a Zen 5 core, where it uses the kernels of an
older core (140 of 272 GFLOP/s, OpenBLAS of NumPy 2.4, 2026-11-27).
"""

import time
from typing import Any

import numpy as np

import tvm
from tvm import te
from tvm.s_tir import Schedule

from ..host import host_target

_TILES = ((8, 2, 16), (6, 2, 8))
"""Rows, vectors per row and floats per vector of a tile. The first tile fits 32 registers of 512
bits, the second one 16 registers of 256 bits."""

_DEPTH, _REPEATS, _ROUNDS = 256, 64, 20
"""Products per sum, tiles per call, and number of calls, of which the fastest counts."""


def peak_flops() -> float:
    """Measure the operations per second of one core; a multiplication and an addition are two.

    The measurement takes a tenth of a second.
    """
    return max(_rate(*tile) for tile in _TILES)


def _rate(rows: int, vectors: int, lanes: int) -> float:
    kernel = tvm.compile(_tile(rows, vectors, lanes).mod, host_target())["main"]
    shapes = (_DEPTH, rows), (_DEPTH, vectors * lanes), (_REPEATS, rows, vectors * lanes)
    arguments = [tvm.runtime.tensor(np.ones(shape, np.float32)) for shape in shapes]
    seconds = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        kernel(*arguments)
        seconds.append(time.perf_counter() - start)
    return 2 * _DEPTH * _REPEATS * rows * vectors * lanes / min(seconds)


def _tile(rows: int, vectors: int, lanes: int) -> Schedule:
    """A kernel that computes one tile of a matrix product repeatedly, with sums in registers."""
    left = te.placeholder((_DEPTH, rows), name="left")
    right = te.placeholder((_DEPTH, vectors * lanes), name="right")
    k = te.reduce_axis((0, _DEPTH), "k")

    def product(_repeat: Any, row: Any, column: Any) -> Any:
        return te.sum(left[k, row] * right[k, column], axis=[k])

    tiles = te.compute((_REPEATS, rows, vectors * lanes), product, name="tiles")
    schedule = Schedule(te.create_prim_func([left, right, tiles]))
    block = schedule.get_sblock("tiles")
    _, row, columns, depth = schedule.get_loops(block)
    vector, lane = schedule.split(columns, [vectors, lanes])
    schedule.reorder(depth, row, vector, lane)
    for loop in (row, vector):
        schedule.unroll(loop)
    schedule.vectorize(lane)
    schedule.decompose_reduction(block, depth)
    return schedule

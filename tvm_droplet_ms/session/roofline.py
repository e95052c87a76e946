# SPDX-License-Identifier: Apache-2.0
"""The roofline of a kernel: the time below which this machine cannot run it.

After "Roofline: An Insightful Visual Performance Model" (Williams et al., 2009): a kernel needs at
least the time of its floating-point operations at the peak rate, and at least the time of its bytes
at the bandwidth. The bounds rank kernels and say when to stop; they are estimates, not proofs.
"""

import time
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np
import tvm_ffi
from tvm_ffi.structural import structural_walk

import tvm
from tvm import DataType, te
from tvm.ir import IRModule
from tvm.ir.expr import TensorLoad
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.analysis import estimate_tir_flops
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.tirx import IterVar

from ..design_space.trees import entry_function, nodes_in
from ..host import copy_bandwidth, host_target, tvm_num_threads
from ..measure import available_cpus

_TILES = ((8, 2, 16), (6, 2, 8))
"""Rows, vectors per row and floats per vector of a tile. The first tile fits 32 registers of 512
bits, the second one 16 registers of 256 bits."""

_DEPTH, _REPEATS, _ROUNDS = 256, 64, 20
"""Products per sum, tiles per call, and number of calls, of which the fastest counts."""


def peak_flops() -> float:
    """Measure the float32 operations per second of a core; a product and a sum are two.

    It takes a tenth of a second. The kernel is a register tile of a matrix product whose operands
    stay in the L1 cache: the inner loop of every fast convolution and matrix product. NumPy's BLAS
    is not a substitute: it reaches 94% of this rate on a Zen 4 core, and 51% on a Zen 5 core, where
    it uses the kernels of an older core (140 of 272 GFLOP/s, OpenBLAS of NumPy 2.4, 2026-11-27).
    """
    return max(_tile_flops(*tile) for tile in _TILES)


def _tile_flops(rows: int, vectors: int, lanes: int) -> float:
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


WORKING_SETS = tuple(2**power for power in (17, 20, 23, 26))
"""Bytes of the working sets that the bandwidth is measured with, ascending: 128 KiB to 64 MiB, so
that each level of a cache has one."""

NAIVE_RATE = 2e9
"""The best operations per second of kernels without schedules: 0.3e9 to 2e9 were measured."""

TILE_RATE = 10
"""The speedup of matrix tiles for each product that an instruction adds to a lane. In total,
bfloat16 has 20 times the arithmetic rate of float32, and bytes 40 times (Sapphire Rapids)."""

_SUM_RATES = {"float64": 1.0, "float32": 1.0, "float16": 2.0, "int32": 4.0}
"""The maximum rate of sums in vectors, as a multiple of float32's, by their type: an instruction of
AVX512_VNNI adds four products of bytes to each int32."""

LEAST_BOUND = 1e-9
"""The least roofline in seconds, for a task that neither computes nor moves anything."""


@dataclass(frozen=True)
class Work:
    """The work of one run of a kernel.

    ``flops``: operations. ``bytes``: bytes of the inputs and outputs. ``rate``: the number of its
    operations that take as long as one float32 operation.
    """

    flops: float
    bytes: float
    rate: float = 1.0


@dataclass(frozen=True)
class MachineRates:
    """The rates of the machine.

    ``flops_per_sec``: the peak rate of float32 operations. ``working_sets``: sizes in bytes,
    ascending. ``bytes_per_sec``: the bandwidth with each working set, read and written bytes
    together.
    """

    flops_per_sec: float
    working_sets: tuple[int, ...]
    bytes_per_sec: tuple[float, ...]

    def bandwidth(self, working_set: float) -> float:
        """The bandwidth in bytes per second for a kernel with a working set in bytes.

        It is the bandwidth of the largest measured working set that is not larger: a kernel that
        touches 8 MiB may still keep a part of them in the caches that hold 4 MiB.
        """
        return self.bytes_per_sec[max(bisect_right(self.working_sets, working_set) - 1, 0)]

    def lower_bound(self, work: Work) -> float:
        """The roofline of a kernel in seconds: the longer of its compute and memory times."""
        computing = work.flops / (work.rate * self.flops_per_sec)
        return max(computing, work.bytes / self.bandwidth(work.bytes))


def task_work(mod: Any) -> Work:
    """Count the work of a task before it is scheduled.

    ``mod``: the workload: one kernel of static shapes. Returns the operations as
    ``tvm.s_tir.analysis.estimate_tir_flops`` counts them, the bytes of the function's buffers, and
    the rate of products of bytes and of bfloat16 (``dot_products``). For a Winograd convolution,
    only the products are counted, because TVM counts every branch of the transforms. Raises
    ``ValueError`` if a buffer's shape is not constant.
    """
    from ..model.kernels.winograd.winograd import implementation_of

    sizes = []
    for argument in ArgInfo.from_entry_func(mod, remove_preproc=True):
        try:
            extents = [int(extent) for extent in argument.shape]
        except TypeError as error:
            raise ValueError(
                f"an argument of the task has the shape {list(argument.shape)}, expected constants"
            ) from error
        sizes.append(prod(extents) * int(DataType(str(argument.dtype)).itemsize))
    flops = max(0.0, float(estimate_tir_flops(mod)))
    what = implementation_of(IRModule({"main": entry_function(mod)}))
    if what is not None and what.tile is not None:
        flops = min(flops, what.flops)
    return Work(flops, float(sum(sizes)), _rate(mod))


def _rate(mod: Any) -> float:
    """The number of products that this CPU adds to a lane at once, for the types a kernel reads."""
    read: dict[Any, str] = {}

    def look(load: Any) -> None:
        read[load.source] = str(load.source.dtype)

    for _, function in mod.functions_items():
        structural_walk(function, (TensorLoad, look))
    types = list(read.values())
    for dtypes, depth in _depths().items():
        if sum(dtype in dtypes for dtype in types) > 1:
            return float(depth)
    return 1.0


@cache
def _depths() -> dict[tuple[str, ...], int]:
    """The number of products that this CPU adds to a lane at once, by the types of the factors."""
    from ..design_space.dot_products.find_dot import dot_unit, half_unit
    from ..design_space.matrix_tiles.find_matrix import matrix_units

    units = [dot_unit(host_target()), half_unit(host_target())]
    depths = {unit.dtypes: unit.depth for unit in units if unit is not None}
    of_tiles = {unit.dtypes: TILE_RATE * unit.depth for unit in matrix_units(host_target())}
    return depths | of_tiles


def task_bound(mod: Any, rates: MachineRates) -> float | None:
    """The roofline of a task in seconds; None if its work cannot be counted."""
    # TVM raises errors of many types for a statement that it cannot count.
    try:
        return max(rates.lower_bound(task_work(mod)), LEAST_BOUND)
    except Exception:
        return None


def least_vector_secs(mod: Any, rates: MachineRates) -> float:
    """The least seconds of a CPU task's sums in vectors, without tensor intrinsics.

    These are the operations of its sums at the peak rate. The result is 0 if they cannot be counted
    and for sums of other types than those of ``_SUM_RATES``. Other operations are not counted: a
    vector has four times as many bytes as float32 numbers.
    """
    secs = 0.0
    # TVM raises errors of many types for a statement that it cannot count.
    try:
        for block in nodes_in(entry_function(mod).body, SBlock):
            is_sum = any(axis.iter_type == IterVar.CommReduce for axis in block.iter_vars)
            rate = _SUM_RATES.get(str(block.writes[0].source.dtype)) if is_sum else None
            if rate is not None:
                elements = prod(int(axis.dom.extent) for axis in block.iter_vars)
                secs += 2 * elements / (rate * rates.flops_per_sec)
        # The transforms of a Winograd convolution are sums too, of which most terms are zeros.
        return min(secs, task_work(mod).flops / rates.flops_per_sec)
    except Exception:
        return 0.0


@cache
def measure_machine(threads: int = 1) -> MachineRates:
    """Measure the machine's rates, once per process; it takes less than half a second.

    The peak rate and the bandwidths of one thread are multiplied by ``threads``, so that the bounds
    err on the low side.
    """
    peak = threads * peak_flops()
    bandwidths = [threads * copy_bandwidth(size) for size in WORKING_SETS]
    # Apart from noise, a smaller working set is never slower than a larger one.
    for place in range(len(bandwidths) - 2, -1, -1):
        bandwidths[place] = max(bandwidths[place], bandwidths[place + 1])
    return MachineRates(peak, WORKING_SETS, tuple(bandwidths))


def naive_secs(tasks: Iterable[Any]) -> float:
    """The least seconds of a model's kernels without schedules, where their work can be counted."""
    total = 0.0
    for task in tasks:
        # TVM raises errors of many types for a statement that it cannot count.
        try:
            total += int(task.weight) * task_work(task.dispatched[0]).flops
        except Exception:
            continue
    return total / NAIVE_RATE


def host_bound(mod: Any, target: Any) -> float | None:
    """The roofline of a task in seconds for a CPU target, as if it were this machine.

    ``mod``: the workload. ``target``: its target. Kernels run on as many threads as the target has
    cores, but on no more than TVM's runtime has in this process. Returns None for another device,
    for kernels of other types than float32, whose peak rate is not measured, and if the work cannot
    be counted.
    """
    if target.kind.name != "llvm" or not _is_float32(mod):
        return None
    cores = int(target.attrs.get("num-cores", 1))
    threads = min(cores, tvm_num_threads(), len(available_cpus()))
    return task_bound(mod, measure_machine(max(threads, 1)))


def _is_float32(mod: Any) -> bool:
    """True if all arguments of a workload are float32 buffers."""
    try:
        arguments = ArgInfo.from_entry_func(mod, remove_preproc=True)
    except Exception:  # TVM raises errors of many types for arguments that it cannot read.
        return False
    return all(str(argument.dtype) == "float32" for argument in arguments)


tvm_ffi.register_global_func("tvm_droplet_ms.roofline", host_bound, override=True)

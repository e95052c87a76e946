# SPDX-License-Identifier: Apache-2.0
"""Vectors of lengths that LLVM keeps in registers.

TVM vectorizes a loop of up to 64 elements as it is. LLVM makes scalars of a vector that is longer
than a register and whose length is no power of two: convolutions with 24 output channels took
59 ms with vectors of 24, and 5.4 ms with three vectors of 8 in their place (Zen 5, one
thread). It computes an address for each element of a vector that does not divide the rows of an
elementwise block: a batch norm of 56x56x224 took 669 us with vectors of 64, and 53 with 32.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, compress
from math import gcd, prod
from typing import Any

from tvm import DataType
from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.target import Target
from tvm.target.codegen import llvm_get_cpu_features
from tvm.tirx import For, ForKind, IntImm, IterVar

from .entry_function import entry_name
from .screening.torn_tuples import chooses_by

REGISTER = 64
"""The bytes of the longest vector registers, those of AVX-512. Of 12 floats on AVX2, vectors took
3.3 times as long as three of 4 (a matmul of 128 x 256)."""

_REGISTERS = {"avx512f": REGISTER, "avx": 32}
"""The bytes of the registers of CPUs with longer ones than 16 bytes, the longest first."""

FEWEST_LANES = 4
"""The shortest vectors that a longer one is made of. Of length 20, five vectors of 4 take 0.6 times
as long; with fewer lanes nothing was gained."""

_VECTORIZES = "RewriteParallelVectorizeUnroll"

_LEAVES_VECTORS = ContextVar("_LEAVES_VECTORS", default=False)


class NativeVectors:
    """Splits vectors of odd lengths into vectors of a power of two, one after the other.

    Those of elementwise blocks are split so that they divide the rows.

    So are those of reductions that choose by the lane, as a padded convolution does: TVM makes a
    loop of such a vector, whose indices ``i // 4`` and ``i % 4`` LLVM 22 takes for consecutive ones
    (``docs/upstream/loop_vectorizer.md``).

    What cannot be split is refused in a reduction, which has schedules with other vectors: of a
    convolution of 240 channels, vectors of 30 took 11.5 ms and of 16 1.0. Elementwise blocks have
    no other, and keep theirs.

    It is applied to a schedule as a postprocessor is, between the one that vectorizes and the one
    that takes reductions apart. ``register``: the bytes of the target's longest vector registers.
    """

    def __init__(self, register: int = REGISTER) -> None:
        self._register = register

    def apply(self, schedule: Schedule) -> bool:
        """Split the vectors of a schedule; returns False to refuse it."""
        for block in _blocks(schedule):
            for loop in _vectorized(schedule, block):
                extent, itemsize = int(schedule.get(loop).extent), _itemsize(schedule, block)
                lanes = native_lanes(extent, itemsize, self._register)
                is_odd = extent * itemsize > self._register and extent & (extent - 1) != 0
                is_reduction = _is_reduction(schedule, block)
                if is_odd and lanes == extent and is_reduction:
                    return False
                shape = _written_shape(schedule, block)
                if is_reduction and shape[-1] < lanes and chooses_by(schedule.get(loop)):
                    lanes = row_lanes(lanes, shape)
                    if lanes > shape[-1]:
                        return False
                if not is_reduction:
                    in_row = row_lanes(lanes, shape)
                    if in_row < lanes and _split_rows(schedule, block, shape[-1], in_row):
                        continue
                    lanes = in_row
                if lanes < extent:
                    outer, inner = schedule.split(loop, [None, lanes])
                    schedule.vectorize(inner)
                    schedule.unroll(outer)
        return True

    def __str__(self) -> str:
        return "NativeVectors"


def register_bytes(target: Target | None) -> int:
    """The bytes of the longest vector registers of a CPU; ``REGISTER`` for other targets."""
    if target is None or target.kind.name != "llvm":
        return REGISTER
    features = {str(name) for name in llvm_get_cpu_features(target)}
    return next((size for name, size in _REGISTERS.items() if name in features), 16)


def register_floats(target: Target | None) -> int:
    """The lanes of float32 of these registers."""
    return register_bytes(target) // 4


def native_lanes(extent: int, itemsize: int, register: int = REGISTER) -> int:
    """The lanes of the vectors that a vectorized loop is best made of.

    The largest power of two that divides the extent and fits into a register; the extent itself
    where it is a power of two, fits, or is made of fewer than ``FEWEST_LANES``.
    """
    power = extent & -extent
    if power == extent or extent * itemsize <= register or power < FEWEST_LANES:
        return extent
    return min(power, register // itemsize)


def row_lanes(lanes: int, shape: Sequence[int]) -> int:
    """The lanes of the vectors over the elements of a tensor, one row after the other.

    ``lanes``: those that are wanted. Where there are several rows, the largest power of two that
    divides them and the rows; `lanes` where that is less than ``FEWEST_LANES``.
    """
    if prod(shape[:-1]) == 1 or shape[-1] % lanes == 0:
        return lanes
    power = gcd(lanes & -lanes, shape[-1])
    return power if power >= FEWEST_LANES else lanes


@contextmanager
def vectors_as_sampled() -> Iterator[None]:
    """Within it searches leave vectors alone, as spaces need that were measured with TVM's."""
    token = _LEAVES_VECTORS.set(True)
    try:
        yield
    finally:
        _LEAVES_VECTORS.reset(token)


def with_native_vectors(postprocs: Sequence[Any], target: Target) -> list[Any]:
    """A task's postprocessors, with ``NativeVectors`` after the one that vectorizes, for a CPU.

    Within ``vectors_as_sampled`` they stay as they are.
    """
    if target.kind.name != "llvm" or _LEAVES_VECTORS.get():
        return list(postprocs)
    vectors = NativeVectors(register_bytes(target))
    return list(
        chain.from_iterable(
            [postproc, vectors] if _VECTORIZES in str(postproc) else [postproc]
            for postproc in postprocs
        )
    )


def _blocks(schedule: Schedule) -> list[SBlockRV]:
    """The blocks that a schedule works on; none where they lie in no block ``root``."""
    try:
        root = schedule.get_sblock("root", entry_name(schedule.mod))
    except ScheduleError:
        return []
    return list(schedule.get_child_blocks(root))


def _vectorized(schedule: Schedule, block: SBlockRV) -> list[LoopRV]:
    """The vectorized loops around a block, of known extents.

    Read from the state: to ask the schedule for each loop takes ten times as long, and few are.
    """
    nodes: list[Any] = []
    around = schedule.get_sref(block).parent
    while around is not None and isinstance(around.stmt, For):
        nodes.insert(0, around.stmt)
        around = around.parent
    wanted = [node.kind == ForKind.VECTORIZED and isinstance(node.extent, IntImm) for node in nodes]
    return list(compress(schedule.get_loops(block), wanted)) if any(wanted) else []


def _is_reduction(schedule: Schedule, block: SBlockRV) -> bool:
    axes: Sequence[Any] = schedule.get(block).iter_vars
    return any(axis.iter_type == IterVar.CommReduce for axis in axes)


def _split_rows(schedule: Schedule, block: SBlockRV, row: int, lanes: int) -> bool:
    """Split the two innermost loops of a block into rows, and these into vectors.

    So each index is that of one loop, or of a vector within a row. A vector that is split again has
    indices that TVM does not simplify: an image of 3x224x224 is rounded to bytes in 60 us so, and
    in 12 by rows. ``row``: the elements of a row, a
    multiple of ``lanes``. Returns False, and changes nothing, where two loops are no whole rows.
    """
    loops = list(schedule.get_loops(block))[-2:]
    if len(loops) < 2:
        return False
    nodes = [schedule.get(loop) for loop in loops]
    known = all(isinstance(node.extent, IntImm) and not node.annotations for node in nodes)
    kinds = [node.kind for node in nodes]
    if not known or kinds[0] not in (ForKind.SERIAL, ForKind.PARALLEL):
        return False
    if kinds[1] != ForKind.VECTORIZED or prod(int(node.extent) for node in nodes) % row:
        return False
    rows, _, vector = schedule.split(schedule.fuse(*loops), [None, row // lanes, lanes])
    if kinds[0] == ForKind.PARALLEL:
        schedule.parallel(rows)
    schedule.vectorize(vector)
    return True


def _written_shape(schedule: Schedule, block: SBlockRV) -> list[int]:
    """The extents of the tensor that a block writes; a row of one where they are not known."""
    writes: Sequence[Any] = schedule.get(block).writes
    shape = writes[0].source.shape if writes else ()
    known = len(shape) > 0 and all(isinstance(extent, IntImm) for extent in shape)
    return [int(extent) for extent in shape] if known else [1]


def _itemsize(schedule: Schedule, block: SBlockRV) -> int:
    writes: Sequence[Any] = schedule.get(block).writes
    return max(int(DataType(str(region.source.dtype)).itemsize) for region in writes)

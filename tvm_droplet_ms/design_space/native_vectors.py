# SPDX-License-Identifier: Apache-2.0
"""Splits vectors into lengths that LLVM keeps in registers.

TVM vectorizes a loop of up to 64 elements without splitting it. LLVM scalarizes a vector that is
longer than a register if its length is not a power of two, which takes ten times as long. In an
elementwise block, it computes an address per element if the vector length does not divide the rows.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, compress
from math import gcd, prod
from typing import Any

from tvm import DataType
from tvm.s_tir import SBlockRealize, Schedule, ScheduleError
from tvm.s_tir.schedule import LoopRV, SBlockRV
from tvm.target import Target
from tvm.target.codegen import llvm_get_cpu_features
from tvm.tirx import For, ForKind, IntImm, IterVar

from .register_tiles.partitions import PARTITIONED
from .screening.miscompiled import chooses_by
from .trees import entry_name

REGISTER = 64
"""Bytes of the longest vector registers (AVX-512)."""

_REGISTERS = {"avx512f": REGISTER, "avx": 32}
"""Register bytes by CPU feature, for registers longer than 16 bytes, the longest first."""

FEWEST_LANES = 4
"""Minimum lanes of the parts of a split vector. Parts with fewer lanes gain nothing."""

_VECTORIZES = "RewriteParallelVectorizeUnroll"

_LEAVES_VECTORS = ContextVar("_LEAVES_VECTORS", default=False)


class NativeVectors:
    """Splits vectors of odd lengths into consecutive vectors of a power of two.

    In elementwise blocks, the new length also divides the rows.

    The same holds for reductions with a condition that depends on the lane, such as padded
    convolutions. TVM turns such a vector into a loop, and LLVM 22 treats its indices ``i // 4`` and
    ``i % 4`` as consecutive (``docs/upstream/loop_vectorizer.md``).

    A reduction with a vector that cannot be split is refused, because it has schedules with other
    vectors: vectors of 30 instead of 16 take eleven times as long. Elementwise blocks have no other
    schedules, and keep their vectors.

    It is applied to a schedule like a postprocessor, between the one that vectorizes and the one
    that decomposes reductions. ``register``: the bytes of the target's longest vector registers.
    """

    def __init__(self, register: int = REGISTER) -> None:
        self._register = register

    def apply(self, schedule: Schedule) -> bool:
        """Split the vectors of a schedule; return False to refuse the schedule."""
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
    """Return the bytes of a CPU's longest vector registers; ``REGISTER`` for other targets."""
    if target is None or target.kind.name != "llvm":
        return REGISTER
    features = {str(name) for name in llvm_get_cpu_features(target)}
    return next((size for name, size in _REGISTERS.items() if name in features), 16)


def register_floats(target: Target | None) -> int:
    """Return the number of float32 lanes of these registers."""
    return register_bytes(target) // 4


def native_lanes(extent: int, itemsize: int, register: int = REGISTER) -> int:
    """Return the best number of lanes for a vectorized loop.

    This is the largest power of two that divides the extent and fits into a register. It is the
    extent itself if the extent is a power of two, fits into a register, or has only power-of-two
    divisors below ``FEWEST_LANES``.
    """
    power = extent & -extent
    if power == extent or extent * itemsize <= register or power < FEWEST_LANES:
        return extent
    return min(power, register // itemsize)


def row_lanes(lanes: int, shape: Sequence[int]) -> int:
    """Return the number of lanes for vectors over the contiguous rows of a tensor.

    ``lanes``: the wanted number. If the tensor has several rows and `lanes` does not divide them,
    returns the largest power of two that divides both; `lanes` if that is below ``FEWEST_LANES``.
    """
    if prod(shape[:-1]) == 1 or shape[-1] % lanes == 0:
        return lanes
    power = gcd(lanes & -lanes, shape[-1])
    return power if power >= FEWEST_LANES else lanes


class OddRows:
    """Splits the rows of elementwise blocks that no vector divides, before TVM fuses their loops.

    The last vector of a row is a loop of its own. Vectors of the fused loop would cross rows.

    It is applied to a schedule like a postprocessor, before the one that vectorizes, which leaves
    the split loops alone. ``register``: the bytes of the target's longest vector registers.
    """

    def __init__(self, register: int = REGISTER) -> None:
        self._register = register

    def apply(self, schedule: Schedule) -> bool:
        """Split the rows of a schedule; return True: no schedule is refused."""
        for block in _blocks(schedule):
            row = _written_shape(schedule, block)[-1]
            lanes = self._register // _itemsize(schedule, block)
            # Most blocks end here: the loops take longer to query.
            if row < 2 * lanes or row % lanes == 0:
                continue
            loop = _whole_row(schedule, block)
            if loop is not None:
                vectors, vector = schedule.split(loop, [None, lanes])
                schedule.annotate(vectors, PARTITIONED, True)
                schedule.vectorize(vector)
        return True

    def __str__(self) -> str:
        return "OddRows"


def _whole_row(schedule: Schedule, block: SBlockRV) -> LoopRV | None:
    """Return the loop over the rows of the tensor that an elementwise block writes, if any.

    It is the innermost of several serial loops.
    """
    shape = _written_shape(schedule, block)
    if _is_reduction(schedule, block) or prod(shape[:-1]) == 1:
        return None
    loops = list(schedule.get_loops(block))
    nodes = [schedule.get(loop) for loop in loops]
    if len(loops) < 2 or any(node.kind != ForKind.SERIAL or node.annotations for node in nodes):
        return None
    node = schedule.get(block)
    last = node.writes[0].region[-1].min
    values = _realized(schedule, block)
    is_row = any(
        axis.var.same_as(last) and value.same_as(nodes[-1].loop_var)
        for axis, value in zip(node.iter_vars, values, strict=True)
    )
    extent = nodes[-1].extent
    return loops[-1] if is_row and isinstance(extent, IntImm) and int(extent) == shape[-1] else None


def _realized(schedule: Schedule, block: SBlockRV) -> Sequence[Any]:
    """Return the values that a block's axes have."""
    body = schedule.get(schedule.get_loops(block)[-1]).body
    is_own = isinstance(body, SBlockRealize) and body.block.same_as(schedule.get(block))
    return list(body.iter_values) if is_own else [None] * len(schedule.get(block).iter_vars)


@contextmanager
def vectors_as_sampled() -> Iterator[None]:
    """Keep TVM's vectors and design spaces in searches, for spaces that were measured with them."""
    token = _LEAVES_VECTORS.set(True)
    try:
        yield
    finally:
        _LEAVES_VECTORS.reset(token)


def is_as_sampled() -> bool:
    """Return whether searches keep TVM's vectors and design spaces."""
    return _LEAVES_VECTORS.get()


def with_native_vectors(postprocs: Sequence[Any], target: Target) -> list[Any]:
    """Insert ``OddRows`` and ``NativeVectors`` around the postprocessor that vectorizes on CPUs.

    Within ``vectors_as_sampled``, the postprocessors stay unchanged.
    """
    if target.kind.name != "llvm" or is_as_sampled():
        return list(postprocs)
    rows, vectors = OddRows(register_bytes(target)), NativeVectors(register_bytes(target))
    return list(
        chain.from_iterable(
            [rows, postproc, vectors] if _VECTORIZES in str(postproc) else [postproc]
            for postproc in postprocs
        )
    )


def _blocks(schedule: Schedule) -> list[SBlockRV]:
    """Return the blocks that a schedule works on; empty if there is no block ``root``."""
    try:
        root = schedule.get_sblock("root", entry_name(schedule.mod))
    except ScheduleError:
        return []
    return list(schedule.get_child_blocks(root))


def _vectorized(schedule: Schedule, block: SBlockRV) -> list[LoopRV]:
    """Return the vectorized loops of known extent around a block.

    They are read from the schedule state: querying the schedule for each loop takes ten times as
    long, and few loops are vectorized.
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
    """Split the two innermost loops of a block into rows, and the rows into vectors.

    Each index then comes from one loop, or from a vector within a row. If a vector is split again
    instead, TVM does not simplify its indices, which takes five times as long. ``row``: the
    elements of a row, a multiple of ``lanes``. Returns False, and changes nothing, if the two loops
    do not cover whole rows.
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
    """Return the shape of the tensor that a block writes; ``[1]`` if it is not known."""
    writes: Sequence[Any] = schedule.get(block).writes
    shape = writes[0].source.shape if writes else ()
    known = len(shape) > 0 and all(isinstance(extent, IntImm) for extent in shape)
    return [int(extent) for extent in shape] if known else [1]


def _itemsize(schedule: Schedule, block: SBlockRV) -> int:
    writes: Sequence[Any] = schedule.get(block).writes
    return max(int(DataType(str(region.source.dtype)).itemsize) for region in writes)

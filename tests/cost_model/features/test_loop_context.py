# SPDX-License-Identifier: Apache-2.0
"""The bytes touched by the loops of a schedule match a brute-force count."""

from itertools import product

import numpy as np
from conformance.workloads import matmul, tiled_matmul

from tvm.s_tir import Schedule
from tvm_droplet_ms.cost_model.features.loop_context import loop_nests
from tvm_droplet_ms.cost_model.nests import LoopNest

N = 16


def touched(nest: LoopNest, buffer: str) -> list[list[float]]:
    return [access.touched.tolist() for access in nest.accesses if access.buffer == buffer]


def counted(loops: int, indices) -> list[int]:
    """Bytes touched by each number of innermost loops, found by running the loops."""
    extents = {"j_1": 2, "i_1": 4, "k": N, "j_0": 8, "i_0": 4}
    turning = list(extents)[:loops]
    seen = set()
    for values in product(*(range(extents[name]) for name in turning)):
        at = dict.fromkeys(extents, 0) | dict(zip(turning, values, strict=True))
        point = {"i": 4 * at["i_0"] + at["i_1"], "j": 2 * at["j_0"] + at["j_1"], "k": at["k"]}
        seen.add(tuple(point[axis] for axis in indices))
    return 4 * len(seen)


def test_touched_bytes_match_brute_force():
    init, update = loop_nests(tiled_matmul(N).mod)
    assert update.extents.tolist() == [2, 4, N, 8, 4]
    assert update.iterations.tolist() == [2, 8, 8 * N, 64 * N, 256 * N]
    assert update.kinds.tolist() == [2, 0, 0, 0, 1]
    assert update.unroll_limit == 64
    assert [access.is_write for access in update.accesses] == [True, False, False, False]
    for buffer, indices in (("A", "ik"), ("B", "kj"), ("C", "ij")):
        expected = [counted(loops, indices) for loops in range(1, 6)]
        assert all(found == expected for found in touched(update, buffer))
        assert touched(update, buffer) or buffer == "C"
    assert init.extents.tolist() == [2, 4, 8, 4]
    assert [access.buffer for access in init.accesses] == ["C"]


def test_touched_bytes_of_fused_loops():
    """Block axes are quotients of the fused loop variable."""
    schedule = Schedule(matmul(N, N, N))
    i, j, _ = schedule.get_loops(schedule.get_sblock("C"))
    schedule.fuse(i, j)
    (nest,) = loop_nests(schedule.mod)
    assert nest.extents.tolist() == [N, N * N]
    assert touched(nest, "A")[0] == [4 * N, 4 * N * N]
    assert touched(nest, "B")[0] == [4 * N, 4 * N * N]


def test_touched_bytes_stop_at_buffer_end():
    """The tail of an uneven split lies outside the buffer."""
    schedule = Schedule(matmul(N, N, N))
    i, _, _ = schedule.get_loops(schedule.get_sblock("C"))
    schedule.split(i, [None, 5])
    (nest,) = loop_nests(schedule.mod)
    assert np.prod(nest.extents) == 20 * N * N
    assert max(touched(nest, "A")[0]) == 4 * N * N


def test_nests_that_pack_constant_weights_are_left_out():
    schedule = tiled_matmul(N)
    before = loop_nests(schedule.mod)
    packing = schedule.cache_read("C_update", 2, "global")
    schedule.annotate(packing, "meta_schedule.layout_rewrite_preproc", True)
    after = loop_nests(schedule.mod)
    assert [nest.extents.tolist() for nest in after] == [nest.extents.tolist() for nest in before]
    assert [access.buffer for access in after[1].accesses][2:] == ["A", "B_global"]

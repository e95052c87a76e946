# SPDX-License-Identifier: Apache-2.0
"""Loop trees of small modules, computed by hand."""

import numpy as np
import pytest
from conformance.workloads import LLVM, matmul, tiled_matmul

from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import MeasureCandidate, TuneContext
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm_droplet_ms.cost_model.features.loop_context import loop_nests
from tvm_droplet_ms.cost_model.nests import Access, LoopNest
from tvm_droplet_ms.measure import fast_start
from tvm_droplet_papers.cost_models import LoopTrees
from tvm_droplet_papers.cost_models.loop_tree import MAX_NODES, TREE_FEATURES, WIDTH, loop_tree

N = 16
SERIAL, PARALLEL, VECTORIZED = 0, 1, 2


def nest(turns, accesses=(), unroll_limit=0) -> LoopNest:
    """``turns`` lists number, extent and kind of each loop, innermost first."""
    loops, extents, kinds = (tuple(turn[place] for turn in turns) for place in range(3))
    operations = np.array([3.0, 1.0, 0.0, 0.0, 0.0])
    extents, kinds = np.array(extents, dtype=int), np.array(kinds, dtype=int)
    return LoopNest(extents, kinds, unroll_limit, tuple(accesses), loops, operations)


def rows(features: np.ndarray) -> np.ndarray:
    found = features.reshape(MAX_NODES, 1 + WIDTH)
    count = int((found[:, 0] >= 0).sum())
    assert (found[count:, 0] == -1).all() and not found[count:, 1:].any()
    return found[:count]


def parents(features: np.ndarray) -> list[int]:
    return rows(features)[:, 0].astype(int).tolist()


def access(name: str, touched: list[int], runs: list[int], is_write: bool = False) -> Access:
    return Access(name, is_write, np.array(touched, dtype=float), np.array(runs, dtype=float))


def test_tree_features_match_hand_computed_values():
    """A parallel loop of 12 around a vectorized loop of 4, which writes C and reads A twice."""
    accesses = [
        access("C", [16, 192], [16, 192], is_write=True),
        access("A", [64, 768], [4, 768]),
        access("A", [64, 768], [4, 768]),
    ]
    found = rows(loop_tree([nest([(1, 4, VECTORIZED), (0, 12, PARALLEL)], accesses, 7)]))
    log = np.log2
    # Extent and its power of two, kind, is-block flag; inner, outer, unroll, bytes.
    outer = [log(12), 2, 0, 1, 0, 0, 0, 0, log(48), 0, 3, log(961)]
    inner = [2, 2, 0, 0, 1, 0, 0, 0, 2, log(12), 3, log(81)]
    block = [0, 0, 0, 0, 0, 0, 0, 1, 0, log(48), 0, 0]
    module = [0, 0, 0, 0, 0, 0, 0, 0, log(48), 0, 3, log(961)]
    np.testing.assert_allclose(found[:, 0], [0, 0, 1, 2])
    np.testing.assert_allclose(found[:, 1:13], [module, outer, inner, block], rtol=1e-6)
    # Operations; only the block has any.
    np.testing.assert_allclose(found[:, 13:18], [[0] * 5] * 3 + [[2, 1, 0, 0, 0]])
    # A is larger and comes before C: bytes, accesses per byte, contiguous bytes, is-written flag.
    outer = [log(768), log(96 / 768), log(768), 0, log(192), log(48 / 192), log(192), 1]
    inner = [6, log(8 / 64), 2, 0, 4, log(4 / 16), 4, 1]
    of_buffers = [[*row, *[0] * 8] for row in (outer, outer, inner, [0] * 8)]
    np.testing.assert_allclose(found[:, 18:], of_buffers, rtol=1e-6)


def test_loops_of_extent_1_are_skipped():
    assert parents(loop_tree([nest([(2, 1, SERIAL), (1, 4, SERIAL), (0, 1, PARALLEL)])])) == [
        0,
        0,
        1,
    ]
    assert parents(loop_tree([nest([]), nest([(0, 1, SERIAL)])])) == [0, 0, 0]
    assert parents(loop_tree([])) == [0]


def test_nests_share_common_outer_loops():
    nests = [nest([(1, 4, SERIAL), (0, 2, SERIAL)]), nest([(2, 8, SERIAL), (0, 2, SERIAL)])]
    found = rows(loop_tree([*nests, nest([(3, 4, SERIAL)])]))
    assert found[:, 0].tolist() == [0, 0, 1, 2, 1, 4, 0, 6]
    # The largest iteration count of the inner nests, and the outer iterations.
    assert found[:, 9].tolist() == [4, 4, 2, 0, 3, 0, 2, 0]
    assert found[:, 10].tolist() == [0, 0, 1, 3, 1, 4, 0, 2]


def test_nests_with_most_iterations_are_kept():
    nests = [nest([(place, 2 + place, SERIAL)]) for place in range(MAX_NODES)]
    found = rows(loop_tree(nests))
    # The module and two nodes per nest.
    kept = (MAX_NODES - 1) // 2
    assert len(found) == 1 + 2 * kept
    extents = np.exp2(found[found[:, 1] > 0, 1]).round().astype(int).tolist()
    assert extents == list(range(2 + MAX_NODES - kept, 2 + MAX_NODES))


def test_tree_of_scheduled_module():
    schedule = tiled_matmul(N)
    nests = loop_nests(schedule.mod)
    assert parents(loop_tree(nests)) == [0, 0, 1, 2, 3, 4, 2, 6, 7, 8]
    init, update = nests
    assert init.loops[-2:] == update.loops[-2:] and not set(init.loops[:-2]) & set(
        update.loops[:-2]
    )
    runs = {touched.buffer: touched.runs.tolist() for touched in update.accesses}
    # A: four whole rows from loop k on. B: half a row until j is complete.
    row = 4 * N
    assert runs["A"] == [4, 4, 4 * row, 4 * row, N * row]
    assert runs["B"] == [8, 8, 8, N * row, N * row]


def test_extractor_appends_tree_features():
    fast_start()
    schedule = Schedule(matmul(N, N, N))
    arguments = ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    context = TuneContext(schedule.mod, target=LLVM, num_threads=1)
    candidates = [MeasureCandidate(schedule, arguments)] * 2
    found = LoopTrees().extract(context, candidates)
    assert found.shape == (2, TREE_FEATURES) and found.dtype == np.float32
    np.testing.assert_array_equal(found[0], loop_tree(loop_nests(schedule.mod)))
    np.testing.assert_array_equal(found[0], found[1])
    assert LoopTrees().extract(context, []).shape == (0, LoopTrees.width)
    assert np.isfinite(found).all() and found[0].max() == pytest.approx(12)

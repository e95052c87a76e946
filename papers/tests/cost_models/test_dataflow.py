# SPDX-License-Identifier: Apache-2.0

"""Data movements and statements match values worked by hand."""

from dataclasses import replace

import numpy as np
import pytest
from conformance.strategies import make_evolution
from conformance.workloads import make_context, matmul, tile_all, tiled_matmul

from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm_droplet_ms.cost_model.features.loop_context import loop_nests
from tvm_droplet_papers.cost_models import DataFlow, DataFlowStores
from tvm_droplet_papers.cost_models.dataflow import (
    LEVELS,
    STATEMENT_WIDTH,
    STATEMENTS,
    TOKEN_WIDTH,
    TOKENS,
    data_movements,
    statements,
)
from tvm_droplet_papers.cost_models.pattern_aware import split

N = 128

L3, L2, L1, REGISTERS = range(4)
"""Places of a buffer's levels, the outermost first."""

READ, WRITE, BOTH = np.eye(3).tolist()

NEXT, WITHIN, NONE = np.eye(3).tolist()


@pytest.fixture(scope="module")
def movements() -> np.ndarray:
    """Those of each buffer and level.

    First come C, A and B of the update, whose loops, the outermost first, are i_0 of 32, parallel,
    j_0 of 64, k of 128, i_1 of 4 and j_1 of 2. In bytes, the innermost first, they touch

    - 4, 16, 2048, 2048, 65536 of A,
    - 8, 8, 1024, 65536, 65536 of B,
    - 8, 32, 32, 2048, 65536 of C, read and written,
    - 20, 56, 3104, 69632, 196608 together: i_1 fits the registers, k fits L1, all fits L2.
    """
    rows = data_movements(loop_nests(tiled_matmul(N).mod))
    return rows.reshape(-1, len(LEVELS), TOKEN_WIDTH)


def logs(*values: float) -> list[float]:
    return np.log2(values).tolist()


def test_movements_of_reused_buffer(movements):
    """A into L1: 4 rows of 512 B, in one piece of 2048 B; j_0 uses them 64 times."""
    assert movements[1, L1].tolist() == pytest.approx(
        [
            *(0, 1, 0, 0),
            *READ,
            # k with all within: 1024 executions of a multiplication and an addition.
            *logs(2 * 1024 + 1),
            # 2048 movements of 2048 B, 32 lines; all of A is 65536 B, 1024 lines.
            *logs(2048 * 2048, 32 * 2048, 65536, 1024),
            *logs(2048, 32),
            *NEXT,
            *logs(1024, 3104, 1024 / 2048),
            *logs(2048, 32, 3104 / 32768),
            # k is the last axis of A; j_1 stays at one element.
            *logs(2048, 4),
        ]
    )


def test_movements_of_accumulated_buffer(movements):
    """C into L1: 4 x 2 elements, read and written by each of the 1024 executions."""
    assert movements[0, L1].tolist() == pytest.approx(
        [
            *(0, 1, 0, 0),
            *BOTH,
            *logs(2 * 1024 + 1),
            # Four pieces of 8 B are four lines; all of C is 1024.
            *logs(32 * 2048, 4 * 2048, 65536, 1024),
            *logs(32, 4),
            *WITHIN,
            *logs(1024, 3104, 2048 / 32),
            *logs(2048, 32, 3104 / 32768),
            *logs(8, 8),
        ]
    )


def test_levels_hold_the_largest_loop_that_fits(movements):
    iterations, working_sets = 2.0 ** movements[:3, :, 17], 2.0 ** movements[:3, :, 18]
    for level, expected in {
        L3: (2**21, 196608),
        L2: (2**21, 196608),
        L1: (1024, 3104),
        REGISTERS: (8, 56),
    }.items():
        np.testing.assert_allclose(iterations[:, level], expected[0], rtol=1e-5)
        np.testing.assert_allclose(working_sets[:, level], expected[1], rtol=1e-5)
    # The parallel loop is outside of all but what L2 and L3 hold.
    assert movements[0, :, 21].tolist() == logs(1, 1, 32, 32)
    assert movements[0, :, :4].tolist() == np.eye(4)[::-1].tolist()


def test_smaller_nests_follow_without_gaps(movements):
    """The init writes C; no row after it is a movement."""
    assert movements[3, L3, 4:7].tolist() == WRITE
    assert movements[3, L3, 8] == np.log2(65536)
    assert not movements[4:].any()


def test_buffer_that_is_touched_once_has_no_reuse():
    """An element-wise copy: as many bytes are moved as there are, at every level."""
    nest = loop_nests(tiled_matmul(N).mod)[0]
    rows = data_movements([nest])[: len(LEVELS)]
    assert rows[:, 14:17].tolist() == [NONE] * len(LEVELS)
    assert rows[:, 8].tolist() == rows[:, 10].tolist() == logs(*[65536] * len(LEVELS))


def test_loop_that_fits_no_level_counts_as_innermost():
    """A reduction over more than the last level: its one loop is what moves, everywhere."""
    schedule = Schedule(matmul(1, 1, 2**23))
    (nest,) = loop_nests(schedule.mod)
    rows = data_movements([nest])
    assert nest.extents.tolist() == [2**23, 1, 1]
    assert (rows[:8, 20] == 0.0).all() and rows[0, 22] > 0.0


def test_statements_match_hand_computed_values():
    update, init, *rest = statements(loop_nests(tiled_matmul(N).mod))
    assert update[0] == init[0] == 1.0 and not np.any(rest)
    assert 2.0 ** update[1:6].sum() == pytest.approx((N**3 + 1.0) ** 2, rel=1e-3)
    assert (update[6], init[6]) == (21.0, 14.0)
    parallel, vectorized, unrolled = update[7:16].reshape(3, 3).tolist()
    assert (parallel, vectorized, unrolled) == ([1, 5, 5], [1, 1, 1], [0, 0, 0])
    assert update[16:18].tolist() == pytest.approx([np.log2(65), 5])
    # j_1, i_1, k, j_0, i_0: only k writes the same bytes again.
    assert update[18:].reshape(-1, 3).tolist() == [
        *([1, 1, 0], [2, 0, 0], [7, 0, 1], [6, 0, 0], [5, 0, 0]),
        [0, 0, 0],
    ]


def test_smallest_nests_are_left_out_and_no_nest_is_no_token():
    nest = loop_nests(tiled_matmul(N).mod)[1]
    smaller = [replace(nest, extents=nest.extents // divisor) for divisor in (1, 2, 1, 2, 1)]
    found, alone = data_movements(smaller), data_movements(smaller[::2])
    np.testing.assert_array_equal(found, alone)
    assert not data_movements([]).any() and not statements([]).any()
    bare = replace(nest, extents=nest.extents[:0], kinds=nest.kinds[:0], loops=())
    assert not data_movements([bare]).any() and not statements([bare]).any()


def test_extractors_return_movements_then_statements():
    schedule = tiled_matmul(N)
    context = make_context(make_evolution(), matmul(N, N, N), tile_all)
    candidate = ms.MeasureCandidate(
        schedule, ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
    )
    nests = loop_nests(schedule.mod)
    (found,), (found_stores,) = (
        extractor.extract(context, [candidate]) for extractor in (DataFlow(), DataFlowStores())
    )
    for features in (found, found_stores):
        assert features.dtype == np.float32
        tokens, _ = split(features[None])
        np.testing.assert_array_equal(tokens[0], data_movements(nests))
    assert len(found) == DataFlow.width == TOKENS * TOKEN_WIDTH + STATEMENTS * STATEMENT_WIDTH
    np.testing.assert_array_equal(split(found[None])[1][0], statements(nests))
    stores = PerStoreFeature().extract_from(context, [candidate])[0].numpy()
    rows = split(found_stores[None])[1][0]
    assert rows[:, 0].tolist() == [1.0] * len(stores) + [0.0] * (STATEMENTS - len(stores))
    # The update has the most operations.
    largest = stores[np.argmax(stores[:, :16].sum(axis=1))]
    np.testing.assert_allclose(rows[0, 1:58], largest[:57], rtol=1e-6)
    assert DataFlowStores().extract(context, []).shape == (0, DataFlowStores.width)

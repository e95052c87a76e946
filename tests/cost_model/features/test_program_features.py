# SPDX-License-Identifier: Apache-2.0
"""Features match hand-computed values and TVM's own rows."""

import numpy as np
from conformance.strategies import make_evolution
from conformance.workloads import make_context, matmul, tile_all, tiled_matmul

from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm_droplet_ms.cost_model.features.loop_context import loop_nests
from tvm_droplet_ms.cost_model.features.program_features import (
    FEATURES,
    LOOP_NEST_FEATURES,
    LOOPS,
    RELATIONS,
    ProgramFeatures,
    loop_nest_features,
    relations,
)
from tvm_droplet_ms.cost_model.features.store_features import (
    PER_STORE,
    STORE_FEATURES,
    pooled_stores,
)

N = 16


def candidate(schedule: Schedule) -> ms.MeasureCandidate:
    return ms.MeasureCandidate(schedule, ArgInfo.from_entry_func(schedule.mod, remove_preproc=True))


def context(mod=None) -> ms.TuneContext:
    return make_context(make_evolution(), mod, tile_all)


def test_pooling_matches_hand_computed_values():
    """Keeps the three of four stores with most operations; ties keep their order."""
    stores = np.zeros((4, PER_STORE))
    stores[:, 0] = [1.0, 5.0, 3.0, 5.0]
    stores[:, -1] = [10.0, 20.0, 30.0, 40.0]
    total, largest, first, second, third = pooled_stores(stores).reshape(5, PER_STORE)
    assert (total[0], total[-1]) == (14.0, 100.0)
    assert (largest[0], largest[-1]) == (5.0, 40.0)
    assert [row[-1] for row in (first, second, third)] == [20.0, 40.0, 30.0]
    assert total[1:-1].sum() == 0.0


def test_pooling_pads_missing_stores():
    one = np.arange(PER_STORE, dtype=float)[None]
    rows = pooled_stores(one).reshape(5, PER_STORE)
    assert all(row.tolist() == one[0].tolist() for row in rows[:3])
    assert not rows[3:].any()
    assert not pooled_stores(np.zeros((0, PER_STORE))).any()


def test_matmul_store_features_match_hand_computed_values():
    """The update of a matrix product of 16: 4096 multiplications and 4096 additions."""
    mod = matmul(N, N, N)
    (features,) = ProgramFeatures().extract(context(mod), [candidate(Schedule(mod))])
    total, _, first, second, third = features[:STORE_FEATURES].reshape(5, PER_STORE)
    float_add_sub, float_mul = first[1], first[2]
    assert float_add_sub == float_mul == np.float32(np.log2(N**3 + 1))
    # The last numbers: the product of the outer loops' extents, their number, and no unrolling.
    assert first[-3:].tolist() == [np.float32(np.log2(N**3 + 1)), 2.0, 0.0]
    # There is no other store: the initialization is part of the block.
    assert not second.any() and not third.any()
    np.testing.assert_array_equal(total, first)


def test_features_concatenate_tvm_and_loop_features():
    schedule = tiled_matmul(N)
    task = context(matmul(N, N, N))
    (features,) = ProgramFeatures().extract(task, [candidate(schedule)])
    assert features.shape == (FEATURES,) and features.dtype == np.float32
    (rows,) = PerStoreFeature().extract_from(task, [candidate(schedule)])
    np.testing.assert_array_equal(features[:PER_STORE], rows.numpy().sum(axis=0, dtype=np.float32))
    nests = loop_nests(schedule.mod)
    np.testing.assert_array_equal(features[STORE_FEATURES:][:RELATIONS], relations(nests))
    np.testing.assert_array_equal(features[-LOOP_NEST_FEATURES:], loop_nest_features(nests))
    # The second nest is the update: its innermost loops are j_1 of 2 and i_1 of 4, then k of 16.
    update = features[-LOOP_NEST_FEATURES:].reshape(-1, 3 * LOOPS + 2)[1]
    assert update[:9].tolist() == [1.0, 1.0, 2.0, 2.0, 3.0, 0.0, 4.0, 7.0, 0.0]
    assert update[-2:].tolist() == [64.0, 5.0]


def test_feature_length_is_constant():
    extractor = ProgramFeatures()
    for schedule in (Schedule(matmul(4, 8, 8)), tiled_matmul(32)):
        task = context(schedule.mod)
        assert extractor.extract(task, [candidate(schedule)] * 2).shape == (2, FEATURES)
    assert extractor.extract(context(), []).shape == (0, FEATURES)

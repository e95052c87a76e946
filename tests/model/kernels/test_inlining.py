# SPDX-License-Identifier: Apache-2.0
"""The limit of what is inlined into one expression."""

import numpy as np
import pytest
from graphs import build
from kernel_chain import TARGET, picked, tir_of
from tvm_ffi.structural import structural_equal, structural_walk

import tvm
from tvm import relax
from tvm.ir import Call
from tvm.ir.prim.expr import Add, Cast, Div, Max, Min, Mul, Select, Sub
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.model.kernels.inlining import (
    MOST_OPERATIONS,
    Computed,
    limit_inlining,
    not_to_inline,
)
from tvm_droplet_ms.model.kernels.kernel_pass import blocks_in
from tvm_droplet_ms.tuning.compile.lowering import lower

SHAPE = (4, 96)
MARK = '"schedule_rule": "None"'


def expanded(blocks, place, chosen):
    """The operations of a block's expression, written out."""
    total = blocks[place].operations
    for other, times in blocks[place].reads.items():
        for _ in range(times):
            if blocks[other].may_be_inlined and other not in chosen:
                total += expanded(blocks, other, chosen)
    return total


@pytest.mark.parametrize("seed", range(50))
def test_no_expression_is_larger_than_the_limit(seed):
    rng = np.random.default_rng(seed)
    blocks = []
    for place in range(int(rng.integers(2, 8))):
        others = rng.permutation(place)[: rng.integers(0, 3)]
        reads = {int(other): int(rng.integers(1, 5)) for other in others}
        blocks.append(Computed(int(rng.integers(1, 10)), reads, bool(rng.random() < 0.8)))
    most = int(rng.integers(10, 60))
    whole = [expanded(blocks, place, set()) for place in range(len(blocks))]
    chosen = not_to_inline(blocks, most)
    assert all(blocks[place].may_be_inlined for place in chosen)
    assert all(expanded(blocks, place, chosen) <= most for place in range(len(blocks)))
    assert bool(chosen) == (max(whole) > most)


def test_what_makes_most_of_an_expression_is_chosen():
    blocks = [Computed(20, {}, True), Computed(5, {}, True), Computed(1, {0: 3, 1: 4}, False)]
    assert not_to_inline(blocks, 81) == set()
    assert not_to_inline(blocks, 80) == {0}
    assert not_to_inline(blocks, 20) == {0, 1}


def network(depth, with_inner=False):
    """``tanh`` of ``tanh``; with_inner, the inner ones are outputs too."""

    def body(emit, x):
        found = [x]
        for _ in range(depth):
            found.append(emit(relax.op.tanh(found[-1])))
        return found[1:] if with_inner else found[-1]

    return build(SHAPE, body, num_input=1)


def operations(function, seed=1):
    """The operations of the largest block of a schedule that TVM's rules make."""
    mod = tvm.IRModule({"main": function})
    with fast_tune_contexts():
        context = ms.TuneContext(
            mod, target=TARGET, space_generator="post-order-apply", rand_state=seed
        )
        (schedule,) = context.generate_design_space()
    sizes = []
    for block in blocks_in(schedule.mod["main"].body)[:-1]:
        found = []
        kinds = (Add, Call, Cast, Div, Max, Min, Mul, Select, Sub)
        structural_walk(block.body, (kinds, found.append))
        sizes.append(len(found))
    return max(sizes)


def test_tvm_inlines_what_is_not_marked_and_nothing_else():
    mod = network(1)
    (plain,) = tir_of(lower(mod, TARGET))
    (limited,) = tir_of(limit_inlining(50)(lower(mod, TARGET)))
    # Compute locations are sampled, and one of them is inline.
    for seed in range(1, 21):
        assert operations(plain, seed) > 50 >= operations(limited, seed)


def test_a_function_of_a_function_stays_small():
    (limited,) = tir_of(lower(network(2), TARGET))
    assert MARK in limited.script()
    assert operations(limited) <= MOST_OPERATIONS


def test_small_kernels_are_left_alone():
    before = lower(network(1), TARGET)
    assert MARK not in before.script()
    structural = limit_inlining()(before)
    assert structural_equal(before, structural)
    assert MARK in limit_inlining(50)(before).script()


def test_outputs_are_not_marked():
    """They are never inlined, so that what reads them stays small."""
    for function in tir_of(lower(network(2, with_inner=True), TARGET)):
        assert MARK not in function.script()


def test_the_outputs_are_the_same():
    kernels = picked(network(2))
    x = np.random.default_rng(1).standard_normal(SHAPE, "float32")
    expected = np.tanh(np.tanh(x))
    np.testing.assert_allclose(kernels.compile()([x])[0], expected, rtol=1e-5, atol=1e-6)


def test_a_reference_and_a_pipeline(tmp_path):
    mod = network(2)
    assert MARK not in lower(mod, TARGET, is_reference=True).script()
    tune = relax.get_pipeline(
        "droplet_tuning", total_trials=0, target=TARGET, work_dir=str(tmp_path)
    )
    assert MARK in tune(mod).script()

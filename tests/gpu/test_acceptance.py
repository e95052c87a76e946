# SPDX-License-Identifier: Apache-2.0
"""TVM accepts what is proposed for a GPU, in batches as wide as the builders are many."""

import pytest
from acceptance import TARGETS, main, search
from conformance.driving import drive
from conformance.objectives import rugged, timed

from tvm import te
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.compat import fast_tune_contexts

V100, A100, H100 = TARGETS
LEAST = 0.95

GPU, CPU = "nvidia/nvidia-h100", {"kind": "llvm", "num-cores": 4}


pytestmark = pytest.mark.usefixtures("fast_contexts")


@pytest.mark.parametrize(
    ("workload", "dtype", "target", "trials"),
    [
        ("dense", "float16", A100, 40),
        ("dense", "float32", V100, 16),
        ("dense", "int8", H100, 16),
        ("conv2d_nchw", "float16", H100, 16),
        ("depthwise", "float32", A100, 16),
        ("batch_matmul", "float32", A100, 16),
    ],
)
def test_most_proposals_are_accepted(workload, dtype, target, trials):
    """In a search that explores, and descends by made-up times."""
    found = search(workload, dtype, target, trials)
    assert not found.reasons
    assert found.accepted >= trials and not found.dropped
    assert found.share >= LEAST, found.refused


@pytest.mark.parametrize(
    ("workload", "dtype", "target"),
    [("softmax", "float16", V100), ("layer_norm", "float32", H100), ("rms_norm", "float16", A100)],
)
def test_proposals_that_the_draft_does_not_understand_are_accepted(workload, dtype, target):
    found = search(workload, dtype, target, 40)
    assert found.reasons.total() == found.sketches and not found.masked
    assert found.accepted >= 40
    assert found.share >= LEAST, found.refused


def test_what_the_draft_does_not_understand_is_named(capsys):
    main(["--workloads", "softmax", "--types", "float16", "--targets", A100, "--trials", "4"])
    *_, row = capsys.readouterr().out.splitlines()
    assert "0 of 4; 4 with a schedule whose loops are not bound by its tiling" in row


@pytest.mark.parametrize(
    ("target", "threads", "sizes"),
    [(GPU, 6, [8, 6, 6]), (GPU, 1, [8, 4, 4, 4]), (CPU, 6, [8, 4, 4, 4])],
)
def test_each_thread_has_a_candidate_to_build(target, threads, sizes):
    """After eight that explore."""
    strategy = DropletStrategy(prior=None, stop=None)
    with fast_tune_contexts():
        context = ms.TuneContext(
            te.create_prim_func(te_workload.matmul(64, 64, 64)),
            target=Target(target),
            space_generator="post-order-apply",
            search_strategy=strategy,
            rand_state=1,
            num_threads=threads,
        )
        driven = drive(context, timed(rugged), max_trials=20, num_trials_per_iter=64)
    assert [len(batch) for batch in driven.batches] == sizes

# SPDX-License-Identifier: Apache-2.0
"""The batches of a search are as wide as the builders are many, for a GPU. Needs no GPU."""

import pytest
from conformance.driving import drive
from conformance.objectives import rugged, timed

from tvm import te
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.compat import fast_tune_contexts

GPU, CPU = "nvidia/nvidia-h100", {"kind": "llvm", "num-cores": 4}


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

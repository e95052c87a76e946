# SPDX-License-Identifier: Apache-2.0
"""The end of a DenseNet block, with kernels and graphs that are timed."""

import pytest
from small_models import check_outputs, transition
from stub_bench import operators

from tvm_droplet_papers.graph import optimize


@pytest.mark.slow
def test_the_transition_is_faster_with_the_pool_first(tmp_path):
    before = transition(256, 64)
    result = optimize(before, "auto", work_dir=tmp_path, time_budget_s=60)
    measured = result.reports[0].measured
    names = [name for name in operators(result.mod) if name != "permute_dims"]
    assert names == ["avg_pool2d", "conv2d"]
    # It has a quarter of the arithmetic.
    assert measured.whole_secs(measured.taken) < 0.8 * measured.whole_secs("the input")
    assert all(graph.kernels_secs > 0 for graph in measured.graphs)
    check_outputs(before, result.mod)

    again = optimize(before, "auto", work_dir=tmp_path, time_budget_s=20).reports[0].measured
    assert again.kernels == measured.kernels and again.trials < measured.trials

# SPDX-License-Identifier: Apache-2.0
"""The end of a DenseNet block, with kernels and graphs that are timed."""

import numpy as np
import pytest
from small_models import Weights, inputs_of, module, run
from stub_bench import operators

from tvm import relax
from tvm_droplet_ms.graph import optimize


@pytest.mark.slow
def test_the_transition_is_faster_with_the_pool_first(tmp_path):
    w = Weights()

    def body(emit, x):
        y = emit(relax.op.nn.conv2d(x, w(64, 256, 1, 1)))
        return emit(relax.op.nn.avg_pool2d(y, (2, 2), (2, 2)))

    before = module([(1, 256, 28, 28)], body)
    result = optimize(before, "auto", work_dir=tmp_path, time_budget_s=60)
    measured = result.reports[0].measured
    names = [name for name in operators(result.mod) if name != "permute_dims"]
    assert names == ["avg_pool2d", "conv2d"]
    # It has a quarter of the arithmetic.
    assert measured.whole_secs(measured.taken) < 0.8 * measured.whole_secs("the input")
    assert all(graph.kernels_secs > 0 for graph in measured.graphs)
    arrays = inputs_of(before)
    (expected,), (actual,) = run(before, arrays), run(result.mod, arrays)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-6 * np.abs(expected).max())

    again = optimize(before, "auto", work_dir=tmp_path, time_budget_s=20).reports[0].measured
    assert again.kernels == measured.kernels and again.trials < measured.trials

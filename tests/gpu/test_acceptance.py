# SPDX-License-Identifier: Apache-2.0
"""TVM's postprocessors accept what is proposed for a GPU. Needs no GPU."""

import pytest
from acceptance import TARGETS, main, search

from tvm_droplet_ms.compat import fast_tune_contexts

V100, A100, H100 = TARGETS
LEAST = 0.95


@pytest.fixture(autouse=True)
def _fast():
    with fast_tune_contexts():
        yield


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

# SPDX-License-Identifier: Apache-2.0
"""``tune(precision="bfloat16")``: outputs of rounded products, and what is refused."""

import ml_dtypes
import numpy as np
import pytest

from tvm.relax.frontend import nn
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.search_strategy.dot_products.dot_intrinsics import half_unit
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.tuning import tune

ROWS, INPUTS, HIDDEN = 8, 64, 64
needs_halves = pytest.mark.skipif(
    half_unit(host_target()) is None, reason="this CPU has no AVX512_BF16"
)


class Network(nn.Module):
    """Two dense layers; the outputs of the first are added to those of the second."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(INPUTS, HIDDEN, bias=False)
        self.second = nn.Linear(HIDDEN, HIDDEN, bias=False)

    def forward(self, x):
        hidden = nn.op.relu(self.first(x))
        return hidden + self.second(hidden)


@pytest.fixture(scope="module")
def arrays():
    generator = np.random.default_rng(0)
    shapes = (ROWS, INPUTS), (HIDDEN, INPUTS), (HIDDEN, HIDDEN)
    return [generator.standard_normal(shape).astype("float32") for shape in shapes]


def tuned(arrays, work_dir, **options):
    spec = {"forward": {"x": nn.spec.Tensor((ROWS, INPUTS), "float32")}}
    mod, parameters = Network().export_tvm(spec)
    weights = {name: array for (name, _), array in zip(parameters, arrays[1:], strict=True)}
    return tune((mod, weights), work_dir=work_dir, trials=0, progress=None, **options)


def rounded(array):
    return array.astype(ml_dtypes.bfloat16).astype("float64")


@needs_halves
def test_products_are_of_rounded_numbers(arrays, tmp_path):
    x, first, second = arrays
    hidden = rounded(np.maximum(rounded(x) @ rounded(first).T, 0))
    expected = hidden + hidden @ rounded(second).T
    result = tuned(arrays, tmp_path, precision="bfloat16")
    # An element of the hidden layer may be rounded to the next number.
    np.testing.assert_allclose(result(x), expected, atol=0.1)
    exact = np.maximum(x @ first.T, 0)
    off = np.abs(result(x) - (exact + exact @ second.T)).max()
    assert 10 * np.abs(result(x) - expected).mean() < off
    assert 1e-4 < result.deviation < 2e-2
    assert result.notes == ()
    schedules = [result.schedule(row.name) for row in result.kernels if "matmul" in row.name]
    assert len(schedules) == 2 and all("dot_16x2_bfloat16" in text for text in schedules)


@needs_halves
def test_what_does_not_keep_the_tolerance_stays_in_float32(arrays, tmp_path):
    result = tuned(arrays, tmp_path, precision="bfloat16", tolerance=1e-5)
    assert result.deviation < 1e-5
    assert any("ComputeInBfloat16" in note and "left out" in note for note in result.notes)


def test_other_precisions_and_cpus_are_refused(arrays, tmp_path):
    with pytest.raises(ModelError, match=r"precision='half': expected one of 'float32', 'bfloat1"):
        tuned(arrays, tmp_path, precision="half")
    haswell = {"kind": "llvm", "mcpu": "haswell"}
    with pytest.raises(ModelError, match="the CPU 'haswell' has no AVX512_BF16"):
        tuned(arrays, tmp_path, precision="bfloat16", target=haswell)

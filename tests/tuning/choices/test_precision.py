# SPDX-License-Identifier: Apache-2.0
"""``tune(precision="bfloat16")``: outputs of rounded products, and what is refused."""

import ml_dtypes
import numpy as np
import pytest

from tvm import relax, tirx
from tvm.relax.frontend import nn
from tvm_droplet_ms.design_space.dot_products.find_dot import half_unit
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.tuning import tune
from tvm_droplet_ms.tuning.kernel_tuner import KernelTuner

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


class LeavesRowsOpen:
    """A dense layer of any number of rows."""

    def __init__(self, weight):
        rows = tirx.Var("rows", "int64")
        x = relax.Var("x", relax.TensorType((rows, INPUTS), "float32"))
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            with builder.dataflow():
                product = relax.op.matmul(x, relax.const(weight.T.copy()))
                result = builder.emit_output(product)
            builder.emit_func_output(result)
        self.module = builder.get()


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
    assert result.notes == ("2 of 2 convolutions and dense layers are of bfloat16",)
    schedules = [result.schedule(row.name) for row in result.kernels if "matmul" in row.name]
    names = "dot_16x2_bfloat16", "matrix_tiles.products"
    assert len(schedules) == 2 and all(any(name in text for name in names) for text in schedules)


@pytest.fixture
def without_measuring(monkeypatch):
    monkeypatch.setattr(KernelTuner, "measure_picks", lambda *_: 0)


@needs_halves
@pytest.mark.usefixtures("without_measuring")
def test_a_model_that_does_not_keep_the_tolerance_is_computed_in_float32(arrays, tmp_path):
    result = tuned(arrays, tmp_path, precision="bfloat16", tolerance=1e-5)
    assert result.deviation < 1e-5
    (note,) = result.notes
    assert "in bfloat16 the outputs deviate by" in note and "the tolerance is 1.0e-05" in note
    assert not any("bfloat16" in result.schedule(row.name) for row in result.kernels)


def test_other_precisions_and_cpus_are_refused(arrays, tmp_path):
    with pytest.raises(ModelError, match=r"precision='half': expected one of 'float32', 'bfloat1"):
        tuned(arrays, tmp_path, precision="half")
    with pytest.raises(ModelError, match="exact=False and precision='bfloat16' exclude each other"):
        tuned(arrays, tmp_path, precision="bfloat16", exact=False)
    haswell = {"kind": "llvm", "mcpu": "haswell"}
    with pytest.raises(ModelError, match="the target .*haswell.* has no AVX512_BF16"):
        tuned(arrays, tmp_path, precision="bfloat16", target=haswell)


@needs_halves
@pytest.mark.usefixtures("without_measuring")
def test_two_shapes_in_one_library(arrays, tmp_path):
    """Each shape has its note, and a directory goes on in another precision."""
    options = {"work_dir": tmp_path, "trials": 0, "progress": None}
    mod = LeavesRowsOpen(arrays[1]).module
    shapes = [{"x": (8, INPUTS)}, {"x": (16, INPUTS)}]
    result = tune(mod, shapes=shapes, precision="bfloat16", **options)
    for one in result.each_shape:
        assert 1e-5 < one.deviation < 2e-2
    again = tune(mod, shapes=shapes, **options)
    assert all(one.deviation < 1e-5 for one in again.each_shape)

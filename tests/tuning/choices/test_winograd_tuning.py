# SPDX-License-Identifier: Apache-2.0
"""``tune(exact=False)``, from the measured times to an executable with Winograd convolutions.

The times are made up, so that the choice does not depend on the machine.
"""

import math

import numpy as np
import pytest

from tvm.relax.frontend import nn
from tvm_droplet_ms.model.kernels.winograd.winograd import implementation
from tvm_droplet_ms.session.errors import TooLateError
from tvm_droplet_ms.tuning import model_tuning, tune
from tvm_droplet_ms.tuning.compile.kernel_objects import KernelObjects
from tvm_droplet_ms.tuning.kernel_tuner import KernelTuner

SHAPE = (1, 16, 12, 12)
CHANNELS = 16


class Layer(nn.Module):
    """A convolution and a ReLU."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2D(SHAPE[1], CHANNELS, 3, padding=1, bias=False)

    def forward(self, image):
        return nn.op.relu(self.conv(image))


def model_of(weights):
    mod, ((name, _),) = Layer().export_tvm({"forward": {"image": nn.spec.Tensor(SHAPE, "float32")}})
    return mod, {name: weights}


def convolved(image, weights):
    """The output by NumPy, in float64."""
    padded = np.pad(image[0].astype("float64"), ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    return np.maximum(np.einsum("chwij,ocij->ohw", windows, weights), 0)[None]


def has_winograd(result, image):
    """True if the executable runs a Winograd kernel; the rows of the kernels must agree."""
    run = any("winograd" in name for name in result.compiled.kernel_secs([image], runs=1))
    listed = any("winograd" in row.name for row in result.kernels)
    assert run == listed
    return run


@pytest.fixture
def times(monkeypatch):
    """The seconds of the direct convolution, and of Winograd's with each tile."""
    times = {None: 3e-6, 2: 2e-6, 4: 1e-6}

    def best_secs(self, task):
        return times[implementation(task).tile]

    monkeypatch.setattr(KernelTuner, "best_secs", best_secs)
    monkeypatch.setattr(KernelTuner, "measure_picks", lambda *_: 0)
    return times


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(1).standard_normal(SHAPE).astype("float32")


@pytest.fixture(scope="module")
def weights():
    return np.random.default_rng(0).standard_normal((CHANNELS, SHAPE[1], 3, 3)).astype("float32")


def tune_without_exactness(weights, work_dir, **options):
    return tune(model_of(weights), exact=False, work_dir=work_dir, time_budget_s=600, **options)


def test_the_faster_algorithm_is_in_the_executable(times, image, weights, tmp_path, monkeypatch):
    deadlines = []
    compile_objects = KernelObjects.compile

    def compile_and_look(self, *arguments):
        deadlines.append(self.deadline)
        return compile_objects(self, *arguments)

    monkeypatch.setattr(KernelObjects, "compile", compile_and_look)
    result = tune_without_exactness(weights, tmp_path, trials=8)
    assert has_winograd(result, image)
    assert result.notes == ("1 of 1 layers are computed by Winograd's algorithm",)
    # The last executable has the time of the run, not that of its measuring.
    assert len(set(deadlines)) == 1
    assert 0 < result.deviation < result.check.tolerance == 1e-3
    expected = convolved(image, weights)
    np.testing.assert_allclose(result(image), expected, atol=1e-3 * np.abs(expected).max())
    # Without trials, a run still chooses by the times that the directory has.
    again = tune_without_exactness(weights, tmp_path, trials=0)
    assert again.trials == 0 and has_winograd(again, image)
    np.testing.assert_allclose(again(image), expected, atol=1e-3 * np.abs(expected).max())
    times[None] = 1e-7
    direct = tune_without_exactness(weights, tmp_path, trials=0)
    assert not has_winograd(direct, image)
    assert direct.notes == ("no Winograd convolution was faster",)
    times.update(dict.fromkeys(times, math.inf))
    (note,) = tune_without_exactness(weights, tmp_path, trials=0).notes
    assert note.startswith("no convolution was measured")


def test_a_choice_inside_the_model_that_is_too_late_leaves_what_was_written(
    times, image, weights, tmp_path, monkeypatch
):
    def late(*_arguments):
        raise TooLateError("the time is too short")

    monkeypatch.setattr(model_tuning, "faster_inside", late)
    result = tune_without_exactness(weights, tmp_path, trials=8)
    assert has_winograd(result, image)
    assert all(row.secs > 0 for row in result.kernels)
    assert "the time is too short; schedules were not compared inside the model" in result.notes


def test_a_tolerance_that_is_too_tight_brings_the_direct_kernel_back(times, image, tmp_path):
    # Each output is one input: exact if computed directly, and rounded by Winograd's transforms.
    copies = np.zeros((CHANNELS, SHAPE[1], 3, 3), "float32")
    copies[np.arange(CHANNELS), np.arange(SHAPE[1]), 1, 1] = 1.0
    result = tune_without_exactness(copies, tmp_path, trials=0, tolerance=1e-10)
    assert not has_winograd(result, image)
    assert result.deviation == 0.0
    (note,) = result.notes
    assert "Winograd" in note and "1.0e-10" in note and "computed directly" in note
    np.testing.assert_array_equal(result(image), np.maximum(image, 0))

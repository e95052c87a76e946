# SPDX-License-Identifier: Apache-2.0
"""A float64 run of the import tells rounding from a wrong model."""

import numpy as np
import pytest

from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.target import Target
from tvm_droplet_ms.frontends.imported import Reference
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.tuning.check.judgment import Judgment, in_float64
from tvm_droplet_ms.tuning.check.output_check import OutputCheck
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.compile.lowering import build, lower
from tvm_droplet_ms.tuning.model_kernels import ModelKernels

TARGET = Target({"kind": "llvm", "num-cores": 1})


@I.ir_module
class Varied:
    @R.function
    def main(
        x: R.Tensor((1, 4, 6, 6), "float32"),
        weight: R.Tensor((4, 4, 3, 3), "float32"),
        ids: R.Tensor((4,), "int64"),
    ):
        with R.dataflow():
            layer = R.nn.conv2d(x, weight, padding=(1, 1, 1, 1), out_dtype="float32")
            shift = R.reshape(R.astype(ids, "float32"), (1, 4, 1, 1))
            halves = R.split(R.add(layer, shift), 2, axis=1)
            scaled = R.multiply(halves[1], R.const(0.1, "float32"))
            counted = R.cumsum(ids, axis=0, dtype="float32")
            result = (R.nn.softmax(scaled), (counted, ids), R.full((2,), R.const(0.5), "float32"))
            R.output(result)
        return result


@I.ir_module
class Absorbing:
    """Loses what of x is below the last place of 10000."""

    @R.function
    def main(x: R.Tensor((64,), "float32")) -> R.Tensor((64,), "float32"):
        with R.dataflow():
            high = R.add(x, R.const(10000.0, "float32"))
            result = R.subtract(high, R.const(10000.0, "float32"))
            R.output(result)
        return result


@I.ir_module
class Summing:
    """Adds up so many numbers, one after the other, that the sums in float32 are off by 1e-5."""

    @R.function
    def main(x: R.Tensor((16, 16384), "float32")) -> R.Tensor((16,), "float32"):
        with R.dataflow():
            total = R.sum(x, axis=[1])
            result = R.subtract(total, R.const(8192.0, "float32"))
            R.output(result)
        return result


def compiled(mod):
    return CompiledModel(build(lower(mod, TARGET, is_reference=True), MemoryDatabase(), TARGET))


def test_a_module_in_float64_computes_in_float64():
    generator = np.random.default_rng(0)
    x, weight = (generator.standard_normal(shape) for shape in ((1, 4, 6, 6), (4, 4, 3, 3)))
    ids = np.array([3, 1, 4, 1])
    found = compiled(in_float64(Varied))((x, weight, ids))
    padded = np.pad(x[0], ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    layer = np.einsum("chwij,ocij->ohw", windows, weight) + ids.reshape(4, 1, 1)
    powers = np.exp(np.float32(0.1).astype("f8") * layer[None, 2:])
    expected = [powers / powers.sum(-1, keepdims=True), ids.cumsum(), ids, np.full(2, 0.5)]
    assert [array.dtype.name for array in found] == ["float64", "float64", "int64", "float64"]
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13)


def test_a_module_of_kernels_has_no_form_in_float64():
    lowered = lower(Absorbing, TARGET)
    with pytest.raises(ValueError, match="no form in float64"):
        in_float64(lowered)


class TestJudgment:
    x = np.random.default_rng(0).standard_normal(64).astype("float32")
    long = np.random.default_rng(0).random((16, 1 << 14)).astype("float32")

    def ask(self, mod, right, found, stop=None, inputs=(x,)):
        """The check's verdict after the question, where it refused before."""
        check = OutputCheck(Reference("NumPy", lambda arrays: [right]), (inputs,), ([right],), 1e-4)
        assert not check.agrees(lambda _: [found])
        kernels = ModelKernels(mod, TARGET, MemoryDatabase())
        Judgment(mod, check).ask(kernels, lambda _: [found], stop or StopRequest())
        return check.agrees(lambda _: [found])

    def hurried(self):
        """A request that never ends, and never has time for another run."""
        return StopRequest(1e-6, lambda: 0.0)

    def summed(self, is_off_by):
        """The true outputs of ``Summing``, off by so much of their scale in either direction."""
        truth = self.long.astype("f8").sum(1) - 8192
        signs = np.where(np.arange(len(truth)) % 2, 1.0, -1.0)
        return (truth * (1 + is_off_by * signs)).astype("float32")

    def ask_of_sums(self, is_off_by, stop=None):
        return self.ask(
            Summing, self.summed(3e-5), self.summed(is_off_by), stop, inputs=(self.long,)
        )

    def absorbed(self):
        return (self.x + np.float32(1e4)) - np.float32(1e4)

    def test_what_a_large_number_absorbs_is_rounding(self):
        assert self.ask(Absorbing, self.absorbed(), self.x)

    def test_what_is_wrong_by_more_stays_wrong(self):
        assert not self.ask(Absorbing, self.absorbed(), self.x + np.float32(0.1))

    def test_without_time_nothing_is_excused(self):
        assert not self.ask(Absorbing, self.absorbed(), self.x, StopRequest(0.0))

    def test_an_import_of_another_function_is_said(self):
        with pytest.raises(ModelError, match="TVM's import of the model computes something else"):
            self.ask(Absorbing, 2 * self.x, self.x)

    def test_a_right_import_whose_sums_round_more_than_the_reference_is_not_refused(self):
        plain = CompiledModel(build(lower(Summing, TARGET), MemoryDatabase(), TARGET))
        (found,) = plain((self.long,))
        assert np.abs(found / self.summed(0.0) - 1).max() > 1e-4
        assert self.ask_of_sums(2e-4, self.hurried())
        assert not self.ask_of_sums(2e-2, self.hurried())

    def test_without_time_for_both_runs_nothing_is_said_of_a_wrong_import(self):
        assert not self.ask(Absorbing, 2 * self.x, self.x, self.hurried())

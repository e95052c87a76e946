# SPDX-License-Identifier: Apache-2.0
"""A kernel is compared with its unscheduled self on the values of a run, and blamed alone."""

import numpy as np
import pytest

import tvm
from tvm import relax, te, tirx, topi
from tvm_droplet_ms.tuning.check.diagnosis import different_kernels, results_of
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel

X = np.random.default_rng(0).standard_normal((4, 16)).astype("float32")


def lowered(off=(), *, kind="float32", by=1.0):
    """Three kernels, one after the other, called twice each; those in ``off`` add a number."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(X.shape, "float32"))

    def step(number):
        def compute(data):
            more = tirx.const(by if number in off else 0, kind)
            scaled = topi.multiply(data, tirx.const(3 - number, kind))
            return te.compute(data.shape, lambda *at: scaled[at] + more, name=f"step{number}")

        return compute

    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.astype(relax.op.multiply(x, relax.const(9.0)), kind))
            for _ in range(2):
                for number in range(3):
                    y = builder.emit_te(step(number), y, primfunc_name_hint=f"step{number}")
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    return relax.transform.LegalizeOps()(builder.get())


def compiled(mod):
    return CompiledModel(tvm.compile(mod, "llvm"))


def found(plain, scheduled, tolerance=1e-4):
    names = different_kernels(
        compiled(scheduled), compiled(plain), [X], results_of(plain), tolerance
    )
    return {name.rstrip("0123456789") + name[4:5] for name in names}


@pytest.mark.parametrize("off", [(), (0,), (1,), (0, 2)])
def test_those_that_differ_are_found_and_none_behind_them(off):
    expected = {f"step{number}" for number in off}
    assert found(lowered(), lowered(off)) == expected


def test_small_differences_are_rounding():
    assert not found(lowered(), lowered((1,), by=1e-4), tolerance=1e-3)
    assert found(lowered(), lowered((1,), by=1e-2), tolerance=1e-4)


@pytest.mark.parametrize(("by", "is_wrong"), [(1, False), (2, True)])
def test_bytes_may_be_off_by_one(by, is_wrong):
    differing = found(lowered(kind="int8"), lowered((1,), kind="int8", by=by))
    assert bool(differing) == is_wrong


def test_models_of_other_kernels_are_not_compared():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(X.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit_te(topi.negative, x, primfunc_name_hint="negative")
            y = builder.emit_output(y)
        builder.emit_func_output(y)
    assert not found(lowered(), builder.get())

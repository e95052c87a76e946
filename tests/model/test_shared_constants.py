# SPDX-License-Identifier: Apache-2.0
"""Equal constants that are made one."""

import numpy as np
import pytest
from graphs import build

import tvm
from tvm import relax
from tvm.ir import GenericConst
from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.model.shared_constants import share_constants
from tvm_droplet_ms.session.roofline import MachineRates
from tvm_droplet_ms.tuning.compile.lowering import lower
from tvm_droplet_ms.tuning.model_kernels import ModelKernels
from tvm_droplet_ms.tuning.picks.first_picks import pick_schedules
from tvm_droplet_ms.tuning.picks.pick_workers import WarmStart

HOST = Target({"kind": "llvm", "num-cores": 1})
TARGET = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1})


def sums(*constants):
    """A function for each tuple of constants: the sum of its argument and all of them."""
    builder = relax.BlockBuilder()
    for index, each in enumerate(constants):
        value = x = relax.Var("x", relax.TensorType((4, 512), "float32"))
        with builder.function(f"sum{index}", [x]):
            with builder.dataflow():
                for constant in each:
                    value = builder.emit(relax.op.add(value, relax.const(constant)))
                result = builder.emit_output(value)
            builder.emit_func_output(result)
    return builder.finalize()


def constants_of(mod):
    """The constants of a module, each object once."""
    found = []

    def visit(expr):
        if isinstance(expr, GenericConst) and not any(expr.same_as(other) for other in found):
            found.append(expr)

    for _, function in mod.functions_items():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, visit)
    return found


ONES = np.ones(512, "float32")


def changed(place):
    values = ONES.copy()
    values[place] = 2
    return values


@pytest.mark.parametrize(
    ("constants", "count"),
    [
        ([(ONES, ONES.copy(), ONES.copy())], 1),
        ([(ONES,), (ONES.copy(),)], 1),
        ([(ONES, changed(0), changed(511), changed(511))], 3),
        ([(ONES, ONES.reshape(1, 512))], 2),
        ([(np.float32(1), np.float32(1))], 1),
        # Zero and minus zero are equal, and are not the same.
        ([(np.zeros(512, "float32"), -np.zeros(512, "float32"))], 2),
        # As a set of bytes, NaN is itself.
        ([(ONES * np.nan, ONES * np.nan)], 1),
    ],
)
def test_constants_of_the_same_values_and_type_are_one(constants, count):
    before = sums(*constants)
    after = share_constants()(before)
    assert len(constants_of(after)) == count
    assert len(constants_of(before)) == sum(map(len, constants)), "it has not changed its argument"
    tvm.ir.assert_structural_equal(after, before)


def test_types_of_the_same_bytes_stay_apart():
    def body(_emit, x):
        return [x, *(relax.const(np.zeros(4, kind)) for kind in ("float32", "int32", "float32"))]

    assert len(constants_of(share_constants()(build((4,), body)))) == 2


def recurrent(biases, size=8):
    """Steps of a recurrent network that share a weight, with a bias of rank 1 each."""
    shape = (size, size)
    weight = relax.const(np.random.default_rng(0).standard_normal(shape).astype("float32") / size)

    def body(emit, state):
        for bias in biases:
            state = emit(relax.op.tanh(emit(relax.op.add(bias, relax.op.matmul(state, weight)))))
        return state

    return build((1, size), body)


BIAS = np.random.default_rng(1).standard_normal(8).astype("float32")


def test_steps_of_a_prepared_network_share_their_constants():
    # The preparation gives the bias another rank, step by step.
    prepared = prepare_graph()(recurrent([relax.const(BIAS)] * 5))
    assert len(constants_of(prepared)) == 2
    assert len(constants_of(lower(prepared, TARGET))) == 2


def test_steps_share_their_constants_where_nothing_is_prepared():
    own = recurrent([relax.const(BIAS) for _ in range(5)])
    assert len(constants_of(own)) == 1 + 5
    assert len(constants_of(lower(own, TARGET))) == 2


@pytest.mark.parametrize("are_equal", [True, False])
def test_a_library_has_a_shared_weight_once(are_equal, tmp_path):
    """The biases of the steps are packed by what packs the weight."""
    steps, size = 3, 256
    generator = np.random.default_rng(2)
    values = generator.standard_normal((1 if are_equal else steps, size)).astype("float32")
    mod = recurrent([relax.const(values[step % len(values)]) for step in range(steps)], size)
    kernels = ModelKernels(prepare_graph()(mod), HOST, MemoryDatabase())
    rates = MachineRates(100e9, (1000,), (10e9,))
    kernels.picks = pick_schedules(kernels.tasks, rates, warm_start=WarmStart())
    # Without a schedule that packs the weight the test would say nothing.
    assert kernels.schedules().get_all_tuning_records()
    assert "layout_rewrite_preproc" in str(kernels.schedules().get_all_tuning_records()[0].trace)
    kernels.compile().export(tmp_path / "model.so")
    weight_bytes = 4 * size * size
    assert weight_bytes < (tmp_path / "model.so").stat().st_size < 2 * weight_bytes

# SPDX-License-Identifier: Apache-2.0
"""Kernels that find their weights in the caches."""

import numpy as np
import pytest

import tvm
from tvm import relax
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.relax_integration import extract_tasks
from tvm.target import Target
from tvm_droplet_ms.measure.task_signature import task_signature
from tvm_droplet_ms.model.kernels.weights import weight_marks as weight_reuse
from tvm_droplet_ms.model.kernels.weights.weight_marks import (
    REUSES_WEIGHTS,
    KernelCall,
    calls_of,
    reuses_weights,
    reusing_kernels,
)
from tvm_droplet_ms.tuning.compile.lowering import lower

TARGET = Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1})

WEIGHT, OTHER_WEIGHT = 90, 91


def step(number, weight=WEIGHT, kernel="step"):
    """A call that reads the result of the one before, of 10 bytes, and a weight of 100."""
    return KernelCall(kernel, frozenset({weight}), {number: 10, weight: 100, number + 1: 10})


def test_steps_that_share_a_weight_reuse_it_while_it_fits():
    steps = [step(number) for number in range(4)]
    assert reusing_kernels(steps, 120) == {"step"}
    assert reusing_kernels(steps, 119) == set()


def test_what_is_touched_in_between_counts_once():
    between = KernelCall("sum", frozenset(), {1: 10, 50: 400})
    calls = [each for number in range(4) for each in (step(number), between)]
    # The weight, 400 bytes and two or three tensors of 10 bytes.
    assert reusing_kernels(calls, 100 + 400 + 3 * 10) == {"step"}
    assert reusing_kernels(calls, 100 + 400) == set()


def test_most_calls_have_to_reuse_their_weight():
    shared = [step(0), step(1)]
    assert reusing_kernels(shared, 1000) == set(), "one of two"
    assert reusing_kernels([*shared, step(2)], 1000) == {"step"}
    own = [step(number, weight=90 + number) for number in range(4)]
    assert reusing_kernels(own, 1000) == set()


def test_a_small_weight_of_its_own_does_not_matter():
    def calls(size):
        return [
            KernelCall("step", frozenset({WEIGHT, n}), {WEIGHT: 100, n: size, -n: 10})
            for n in range(1, 5)
        ]

    assert reusing_kernels(calls(99), 1000) == {"step"}
    assert reusing_kernels(calls(100), 1000) == set()


def test_another_kernel_with_the_same_weight_is_another():
    calls = [step(0), step(1, kernel="other"), step(2), step(3, kernel="other")]
    assert reusing_kernels(calls, 1000) == set()


def test_a_kernel_without_weights_reuses_none():
    calls = [KernelCall("tanh", frozenset(), {0: 10})] * 4
    assert reusing_kernels(calls, 1000) == set()


def recurrent(steps, shared, as_parameters=False):
    """A state of 8 values that is multiplied by a weight in every step."""
    generator = np.random.default_rng(0)
    builder = relax.BlockBuilder()
    state = first = relax.Var("x", relax.TensorType((1, 8), "float32"))
    values = [generator.standard_normal((8, 8)).astype("float32") for _ in range(steps)]
    if as_parameters:
        weights = [relax.Var(f"w{i}", relax.TensorType((8, 8), "float32")) for i in range(steps)]
    else:
        weights = [relax.const(value) for value in values]
    with builder.function("main", [first, *(weights if as_parameters else [])]):
        with builder.dataflow():
            for weight in weights:
                state = builder.emit(relax.op.matmul(state, weights[0] if shared else weight))
                state = builder.emit(relax.op.tanh(state))
            result = builder.emit_output(state)
        builder.emit_func_output(result)
    mod = builder.finalize()
    if as_parameters:
        mod["main"] = mod["main"].with_attr("num_input", 1)
    return lower(mod, TARGET)


def marked(lowered):
    return [
        function for _, function in lowered.functions_items() if REUSES_WEIGHTS in function.attrs
    ]


@pytest.mark.parametrize("as_parameters", [False, True])
def test_the_product_of_a_recurrent_step_is_marked(as_parameters):
    (kernel,) = marked(recurrent(5, True, as_parameters))
    (task,) = extract_tasks(recurrent(5, True, as_parameters), TARGET)
    assert reuses_weights(task.dispatched[0])
    shapes = [list(map(int, info.shape)) for info in ArgInfo.from_prim_func(kernel)]
    assert shapes == [[1, 8], [8, 8], [1, 8]]
    # What a schedule makes of it keeps the mark, by which its times are told from cold ones.
    schedule = Schedule(task.dispatched[0])
    plain = tvm.IRModule({"main": schedule.mod["main"].without_attr(REUSES_WEIGHTS)})
    assert task_signature(schedule.mod, TARGET) != task_signature(plain, TARGET)


@pytest.mark.parametrize(("shared", "cache_bytes"), [(False, 1 << 20), (True, 8 * 8 * 4)])
def test_weights_of_their_own_and_small_caches_leave_kernels_cold(shared, cache_bytes, monkeypatch):
    monkeypatch.setattr(weight_reuse, "CACHE_BYTES", cache_bytes)
    assert not marked(recurrent(5, shared))


def test_calls_are_read_in_their_order():
    calls = calls_of(recurrent(3, True)["main"])
    assert len(calls) == 3 and len({call.kernel for call in calls}) == 1
    (weight,) = {number for call in calls for number in call.weights}
    assert all(call.bytes_of[weight] == 8 * 8 * 4 for call in calls)
    states = [[n for n in call.bytes_of if n != weight] for call in calls]
    assert [each[0] for each in states[1:]] == [each[1] for each in states[:-1]]

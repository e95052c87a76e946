# SPDX-License-Identifier: Apache-2.0
"""Plain schedules: what they compute, against the unscheduled kernel."""

import numpy as np
import pytest

import tvm
from tvm import te, topi
from tvm.ir import load_json, save_json
from tvm.s_tir import Schedule, Trace
from tvm.target import Target
from tvm_droplet_ms.measure.build import build_scheduled, source_of
from tvm_droplet_ms.tuning.picks.plain_schedule import plain_schedule

TARGET = Target({"kind": "llvm", "num-cores": 1})


def placeholder(*shape, dtype="float32", name="data"):
    return te.placeholder(shape, name=name, dtype=dtype)


def pool():
    data = placeholder(1, 3, 12, 16)
    return [data, topi.nn.pool2d(data, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), "max")]


def convolution():
    data, weight = placeholder(1, 3, 9, 16), placeholder(8, 3, 3, 3, name="weight")
    return [data, weight, topi.nn.relu(topi.nn.conv2d_nchw(data, weight, 1, 1, 1))]


def softmax():
    data = placeholder(6, 24)
    return [data, topi.nn.softmax(data)]


def gather():
    table, rows = placeholder(20, 32), placeholder(7, dtype="int32", name="rows")
    return [table, rows, topi.take(table, rows, axis=0)]


def concatenation():
    left, right = placeholder(5, 16), placeholder(5, 32, name="right")
    return [left, right, topi.concatenate([left, right], axis=1)]


def resize():
    data = placeholder(1, 2, 6, 8)
    regions = (0.0, 0.0, 0.0, 0.0)
    return [data, topi.image.resize2d(data, regions, (12, 16), layout="NCHW")]


def module_of(tensors):
    return tvm.IRModule({"main": te.create_prim_func(tensors)})


def run(mod, arrays):
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.tirx.build(mod, target=TARGET)["main"](*tensors)
    return tensors[-1].numpy()


@pytest.mark.parametrize("make", [pool, convolution, softmax, gather, concatenation, resize])
def test_is_vectorized_and_computes_the_same(make):
    tensors = make()
    mod = module_of(tensors)
    schedule = plain_schedule(mod)
    assert "T.vectorized" in schedule.mod.script() and "T.parallel" in schedule.mod.script()
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(0, 7, [int(extent) for extent in tensor.shape]).astype(str(tensor.dtype))
        for tensor in tensors
    ]
    np.testing.assert_allclose(run(schedule.mod, arrays), run(mod, arrays), rtol=1e-6)


def largest():
    data = placeholder(1, 3, 11, 503)
    return [data, topi.max(data, (2, 3))]


def total():
    data = placeholder(5, 37, 131)
    return [data, topi.sum(data, (1, 2))]


def odd_rows():
    data, other = placeholder(9, 67), placeholder(9, 67, name="other")
    return [data, other, topi.nn.relu(topi.subtract(data, other))]


def odd_columns():
    return [data := placeholder(29, 67), topi.sum(data, 0)]


def total_with_axes():
    return [data := placeholder(1, 33, 7, 31), topi.sum(data, (2, 3), keepdims=True)]


@pytest.mark.parametrize("index", ["int32", "int64"])
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (largest, lambda data: data.max((2, 3))),
        (total, lambda data: data.sum((1, 2))),
        (odd_rows, lambda data, other: np.maximum(data - other, 0)),
        (odd_columns, lambda data: data.sum(0)),
        (total_with_axes, lambda data: data.sum((2, 3), keepdims=True)),
    ],
)
def test_vectors_need_not_divide_a_loop(make, expected, index):
    tensors = make()
    function = te.create_prim_func(tensors, index_dtype_override=index)
    schedule = plain_schedule(tvm.IRModule({"main": function}))
    assert "T.vectorized" in schedule.mod.script()
    rng = np.random.default_rng(0)
    # Whole numbers add up exactly in any order.
    shapes = [[int(extent) for extent in tensor.shape] for tensor in tensors[:-1]]
    arrays = [rng.integers(-9, 9, shape).astype("float32") for shape in shapes]
    out = tvm.runtime.empty([int(extent) for extent in tensors[-1].shape])
    build_scheduled(schedule.mod, TARGET)["main"](*map(tvm.runtime.tensor, arrays), out)
    np.testing.assert_array_equal(out.numpy(), expected(*arrays))


def test_a_contiguous_sum_is_that_of_vectors():
    """64 numbers at once: the scalar sum adds 4,096 numbers one after the other."""
    data = placeholder(2, 4096)
    schedule = plain_schedule(module_of([data, topi.sum(data, 1)]))
    assert "<64 x float>" in source_of(schedule.mod, TARGET)


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_a_reduction_that_cannot_be_split_is_vectorized_over_its_results(index):
    tensors = [data := placeholder(32, 67, dtype="bool"), topi.any(data, 1)]
    function = te.create_prim_func(tensors, index_dtype_override=index)
    schedule = plain_schedule(tvm.IRModule({"main": function}))
    assert "T.vectorized" in schedule.mod.script()
    given = np.random.default_rng(0).integers(0, 40, (32, 67)) == 0
    out = tvm.runtime.empty((32,), "bool")
    build_scheduled(schedule.mod, TARGET)["main"](tvm.runtime.tensor(given), out)
    np.testing.assert_array_equal(out.numpy(), given.any(1))


def test_replays_from_json():
    mod = module_of(convolution())
    schedule = plain_schedule(mod)
    text = save_json(schedule.trace.as_json())
    again = Schedule(mod)
    Trace.apply_json_to_schedule(load_json(text), again)
    tvm.ir.assert_structural_equal(again.mod, schedule.mod)


@pytest.mark.parametrize("make", ["sum", "cumsum"])
def test_nothing_to_vectorize(make):
    data = placeholder(4, 6)
    out = topi.sum(data) if make == "sum" else topi.cumsum(data, axis=1)
    assert plain_schedule(module_of([data, out])) is None

# SPDX-License-Identifier: Apache-2.0
"""Schedules that reduce contiguous numbers in the lanes of vectors compute what NumPy does."""

import random

import numpy as np
import pytest

import tvm
from tvm import te, topi
from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule import TuneContext
from tvm.target import Target
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.design_space.lane_sums import contiguous_axis
from tvm_droplet_ms.design_space.native_vectors import vectors_as_sampled, with_native_vectors
from tvm_droplet_ms.design_space.register_tiles.partitions import PARTITIONED
from tvm_droplet_ms.design_space.sound_space import FROM_TARGET, sound_schedules, sound_space
from tvm_droplet_ms.design_space.trees import nodes_in
from tvm_droplet_ms.measure.build import build_scheduled, source_of
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer

ONE = Target({"kind": "llvm", "mcpu": "x86-64-v2", "num-cores": 1})
TWO = Target({"kind": "llvm", "mcpu": "x86-64-v2", "num-cores": 2})


def module_of(tensors, index="int64"):
    function = te.create_prim_func(tensors, index_dtype_override=index)
    return tvm.IRModule({"main": function})


def spaces_of(mod, target=ONE):
    with fast_tune_contexts():
        space = sound_space(FROM_TARGET, mod, target)
        context = TuneContext(mod, target=target, space_generator=space, rand_state=1)
        return context, list(context.generate_design_space())


def ours(schedules):
    return [schedule for schedule in schedules if PARTITIONED in str(schedule.trace)]


def drawn(mod, target=ONE, count=4):
    """Random schedules of the rule's design spaces."""
    context, schedules = spaces_of(mod, target)
    postprocs = with_native_vectors(context.space_generator.postprocs, target)
    replayer = ScreenedReplayer(mod, postprocs, random.Random(0))
    traces = [Trace(each.trace.insts, {}) for each in ours(schedules) for _ in range(count)]
    found = [replayer.replay(trace) for trace in traces]
    assert found and all(candidate is not None for candidate in found)
    return [candidate.schedule.mod for candidate in found]


def check(tensors, expected, target=ONE, index="int64"):
    rng = np.random.default_rng(0)
    shapes = [[int(extent) for extent in tensor.shape] for tensor in tensors]
    dtype = str(tensors[0].dtype)
    # Whole numbers add up exactly in any order.
    arrays = [rng.integers(-4, 5, shape).astype(dtype) for shape in shapes[:-1]]
    for mod in drawn(module_of(tensors, index), target):
        out = tvm.runtime.empty(shapes[-1], str(tensors[-1].dtype))
        build_scheduled(mod, target)["main"](*map(tvm.runtime.tensor, arrays), out)
        np.testing.assert_allclose(out.numpy(), expected(*arrays), rtol=1e-5)


def placeholder(*shape, dtype="float32", name="x"):
    return te.placeholder(shape, name=name, dtype=dtype)


@pytest.mark.parametrize("target", [ONE, TWO], ids=["one thread", "two threads"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("length", [32, 67, 257])
def test_sums_of_rows(length, dtype, target):
    x = placeholder(12, length, dtype=dtype)
    check([x, topi.sum(x, 1)], lambda x: x.sum(1), target)


@pytest.mark.parametrize("index", ["int32", "int64"])
def test_several_reduced_axes(index):
    x = placeholder(2, 3, 5, 131)
    check([x, topi.max(x, (2, 3))], lambda x: x.max((2, 3)), index=index)
    check([x, topi.min(x, (0, 1, 2, 3))], lambda x: x.min(), index=index)


def test_products_along_contiguous_numbers():
    k = te.reduce_axis((0, 77), "k")
    x, v = placeholder(9, 77), placeholder(77, name="v")
    y = te.compute((9,), lambda i: te.sum(x[i, k] * v[k], k), "y")
    check([x, v, y], lambda x, v: x @ v)
    w = placeholder(6, 77, name="w")
    y = te.compute((9, 6), lambda i, j: te.sum(x[i, k] * w[j, k], k), "y")
    check([x, w, y], lambda x, w: x @ w.T)


def test_with_what_goes_before_and_follows():
    x = placeholder(5, 7, 67)
    squares = te.compute(x.shape, lambda *at: x(*at) * x(*at), "squares")
    total = topi.sum(squares, 2, keepdims=True)
    check([x, topi.add(total, 1.0)], lambda x: (x * x).sum(2, keepdims=True) + 1)
    check([x, topi.subtract(x, topi.max(x, -1, True))], lambda x: x - x.max(-1, keepdims=True))


def test_softmax_has_one_space():
    """Two reductions: their schedules replace TVM's, and do not multiply the spaces."""
    x = placeholder(6, 131)
    mod = module_of([x, topi.nn.softmax(x)])
    _, schedules = spaces_of(mod)
    assert len(schedules) == 1 and str(schedules[0].trace).count(PARTITIONED) == 2
    check([x, topi.nn.softmax(x)], lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True))


@pytest.mark.parametrize(("rows", "is_alone"), [(6, False), (64, True)])
def test_threads_need_results_to_share(rows, is_alone):
    x = placeholder(rows, 131)
    _, schedules = spaces_of(module_of([x, topi.sum(x, 1)]), TWO)
    assert (len(schedules) == 1) == is_alone


def test_products_keep_the_spaces_of_tvm():
    x, w, k = placeholder(16, 64), placeholder(32, 64, name="w"), te.reduce_axis((0, 64), "k")
    y = te.compute((16, 32), lambda i, j: te.sum(x[i, k] * w[j, k], k), "y")
    _, schedules = spaces_of(module_of([x, w, y]))
    assert 0 < len(ours(schedules)) < len(schedules)


def test_vectors_are_in_the_code():
    x = placeholder(4, 4096)
    for mod in drawn(module_of([x, topi.sum(x, 1)])):
        assert "fadd <" in source_of(mod, ONE)


@pytest.mark.parametrize("what", ["short", "columns", "window", "tuple", "matrices"])
def test_other_kernels_have_no_such_axis(what):
    x = placeholder(8, 1, 64, 31 if what == "short" else 64)
    k = te.reduce_axis((0, 33), "k")
    w = placeholder(64, 8, name="w")
    made = {
        "short": lambda: topi.sum(x, 3),
        "columns": lambda: topi.sum(x, 2),
        "window": lambda: te.compute((8, 32), lambda i, j: te.max(x[i, 0, 0, j + k], k), "y"),
        "tuple": lambda: topi.argmax(x, 3),
        "matrices": lambda: topi.nn.matmul(topi.reshape(x, (512, 64)), w),
    }[what]
    mod = module_of([x, *([w] if what == "matrices" else []), made()])
    assert all(contiguous_axis(each) is None for each in nodes_in(mod["main"], tvm.s_tir.SBlock))


def test_measured_spaces_keep_their_schedules():
    x = placeholder(6, 131)
    mod = module_of([x, topi.sum(x, 1)])
    with fast_tune_contexts():
        context = TuneContext(mod, target=ONE, space_generator=FROM_TARGET, rand_state=1)
        schedules = list(context.generate_design_space())
    assert ours(sound_schedules(schedules, mod, ONE, 1))
    with vectors_as_sampled():
        assert sound_schedules(schedules, mod, ONE, 1) == schedules

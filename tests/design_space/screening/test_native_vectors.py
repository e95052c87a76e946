# SPDX-License-Identifier: Apache-2.0
"""Vectors of lengths that LLVM keeps in registers: which, and that they compute the same."""

import random

import numpy as np
import pytest
from tvm_ffi.structural import structural_walk

import tvm
from tvm import te, topi
from tvm.s_tir import Schedule, ScheduleError, Trace
from tvm.s_tir.meta_schedule import TuneContext
from tvm.target import Target
from tvm.tirx import For, ForKind
from tvm_droplet_ms.design_space.native_vectors import (
    NativeVectors,
    native_lanes,
    register_bytes,
    row_lanes,
    with_native_vectors,
)
from tvm_droplet_ms.design_space.screening.miscompiled import chooses_by
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer

TARGET = Target({"kind": "llvm", "num-cores": 1})
ROWS, COLUMNS, INNER = 16, 24, 32


pytestmark = pytest.mark.usefixtures("fast_contexts")


def product(columns: int = COLUMNS) -> tvm.IRModule:
    """A matmul with so many columns."""
    left = te.placeholder((ROWS, INNER), name="left")
    right = te.placeholder((INNER, columns), name="right")
    k = te.reduce_axis((0, INNER), name="k")
    out = te.compute(
        (ROWS, columns), lambda i, j: te.sum(left[i, k] * right[k, j], axis=k), name="out"
    )
    return tvm.IRModule({"main": te.create_prim_func([left, right, out])})


@pytest.mark.parametrize(
    ("extent", "itemsize", "lanes"),
    [
        (24, 4, 8),
        (48, 4, 16),
        (20, 4, 4),
        (40, 4, 8),
        # Powers of two, vectors that fit, and those without a part worth having stay as they are.
        (32, 4, 32),
        (64, 4, 64),
        (12, 4, 12),
        (16, 4, 16),
        (18, 4, 18),
        (49, 4, 49),
        (1, 4, 1),
        # A register holds 64 bytes and 8 doubles.
        (48, 1, 48),
        (12, 8, 4),
        (48, 8, 8),
    ],
)
def test_lanes(extent, itemsize, lanes):
    assert native_lanes(extent, itemsize) == lanes


@pytest.mark.parametrize(
    ("extent", "register", "lanes"),
    [(12, 32, 4), (24, 32, 8), (8, 32, 8), (12, 64, 12), (10, 32, 10)],
)
def test_lanes_of_a_register(extent, register, lanes):
    assert native_lanes(extent, 4, register) == lanes


@pytest.mark.parametrize(
    ("target", "size"),
    [
        ({"kind": "llvm", "mcpu": "znver4"}, 64),
        ({"kind": "llvm", "mcpu": "znver4", "mattr": ["-avx512f"]}, 32),
        ({"kind": "llvm", "mcpu": "haswell"}, 32),
        ({"kind": "llvm", "mcpu": "x86-64"}, 16),
        ({"kind": "llvm", "mtriple": "aarch64-linux-gnu"}, 16),
        ({"kind": "c"}, 64),
    ],
)
def test_registers_are_those_of_the_target(target, size):
    assert register_bytes(Target(target)) == size


@pytest.mark.parametrize(("columns", "is_kept"), [(10, False), (12, True), (24, True), (8, True)])
def test_short_registers_refuse_more_vectors(columns, is_kept):
    """Ten floats fit into a register of AVX-512, and not into one of AVX2."""
    schedule = Schedule(product(columns))
    i, j, k = schedule.get_loops(schedule.get_sblock("out"))
    schedule.reorder(i, k, j)
    schedule.vectorize(j)
    assert NativeVectors(32).apply(schedule) is is_kept


def test_an_odd_vector_is_split():
    schedule = Schedule(product())
    block = schedule.get_sblock("out")
    i, j, k = schedule.get_loops(block)
    schedule.reorder(i, k, j)
    schedule.vectorize(j)
    assert NativeVectors().apply(schedule)
    loops = [schedule.get(loop) for loop in schedule.get_loops(schedule.get_sblock("out"))]
    assert [(int(loop.extent), loop.kind) for loop in loops[2:]] == [
        (3, ForKind.UNROLLED),
        (8, ForKind.VECTORIZED),
    ]


@pytest.mark.parametrize(("columns", "is_kept"), [(30, False), (24, True), (10, True)])
def test_a_vector_that_cannot_be_split_is_refused_in_a_reduction(columns, is_kept):
    schedule = Schedule(product(columns))
    i, j, k = schedule.get_loops(schedule.get_sblock("out"))
    schedule.reorder(i, k, j)
    schedule.vectorize(j)
    assert NativeVectors().apply(schedule) is is_kept


def test_an_elementwise_block_keeps_its_vectors():
    data = te.placeholder((8, 49), name="data")
    out = te.compute((8, 49), lambda i, j: data[i, j] + 1.0, name="out")
    schedule = Schedule(tvm.IRModule({"main": te.create_prim_func([data, out])}))
    schedule.vectorize(schedule.get_loops(schedule.get_sblock("out"))[1])
    assert NativeVectors().apply(schedule)
    assert vectors(schedule) == [49]


@pytest.mark.parametrize(
    ("lanes", "shape", "expected"),
    [
        (64, (1, 3, 224, 224), 32),
        (64, (56, 56, 24), 8),
        (64, (2, 128), 64),
        (16, (8, 24), 8),
        # One row has no other behind it, and rows of 14 are divided by two alone.
        (64, (1, 1, 1000), 64),
        (64, (64, 14, 14), 64),
    ],
)
def test_lanes_divide_the_rows(lanes, shape, expected):
    assert row_lanes(lanes, shape) == expected


def test_vectors_of_an_elementwise_kernel_divide_its_rows():
    data = te.placeholder((6, 24), name="data")
    out = te.compute((6, 24), lambda i, j: data[i, j] + 1.0, name="out")
    schedule = Schedule(tvm.IRModule({"main": te.create_prim_func([data, out])}))
    fused = schedule.fuse(*schedule.get_loops(schedule.get_sblock("out")))
    outer, inner = schedule.split(fused, [None, 16])
    schedule.parallel(outer)
    schedule.vectorize(inner)
    assert NativeVectors().apply(schedule)
    loops = [schedule.get(loop) for loop in schedule.get_loops(schedule.get_sblock("out"))]
    assert [(int(loop.extent), loop.kind) for loop in loops] == [
        (6, ForKind.PARALLEL),
        (3, ForKind.SERIAL),
        (8, ForKind.VECTORIZED),
    ]
    found, x = np.zeros((6, 24), np.float32), np.arange(144, dtype=np.float32).reshape(6, 24)
    result = tvm.runtime.tensor(found)
    tvm.compile(schedule.mod, "llvm")["main"](tvm.runtime.tensor(x), result)
    np.testing.assert_array_equal(result.numpy(), x + 1)


def test_a_kernel_without_blocks_stays_as_it_is():
    data = te.placeholder((4, 24), name="data")
    mod = tvm.IRModule({"main": te.create_prim_func([data, topi.cumsum(data, axis=1)])})
    schedule = Schedule(mod)
    with pytest.raises(ScheduleError):
        schedule.get_sblock("root")
    assert NativeVectors().apply(schedule)
    tvm.ir.assert_structural_equal(schedule.mod, mod)


def test_only_postprocessors_of_cpus_get_it():
    def names(kind: Target) -> list[str]:
        context = TuneContext(product(), target=kind, space_generator="post-order-apply")
        assert context.space_generator is not None
        postprocs = context.space_generator.postprocs or []
        return [str(each).rpartition(".")[2] for each in with_native_vectors(postprocs, kind)]

    found = names(TARGET)
    assert found.index("NativeVectors") == found.index("RewriteParallelVectorizeUnroll") + 1
    assert found.index("NativeVectors") < found.index("RewriteReductionBlock")
    assert "NativeVectors" not in names(Target("nvidia/nvidia-a100"))


def test_sampled_schedules_have_no_odd_vectors_and_compute_the_product():
    mod = product()
    context = TuneContext(mod, target=TARGET, space_generator="post-order-apply", rand_state=1)
    spaces = context.generate_design_space()
    postprocs = with_native_vectors(context.space_generator.postprocs, TARGET)
    replayer = ScreenedReplayer(mod, postprocs, random.Random(0))
    generator = np.random.default_rng(0)
    left = generator.normal(size=(ROWS, INNER)).astype("float32")
    right = generator.normal(size=(INNER, COLUMNS)).astype("float32")
    found = 0
    for seed in range(20):
        space = Schedule(mod, seed=seed + 1)
        trace = spaces[seed % len(spaces)].trace
        trace.apply_to_schedule(space, remove_postproc=True, decision_provider=lambda *_: None)
        candidate = replayer.replay(space.trace)
        if candidate is None:
            continue
        lanes = vectors(candidate.schedule)
        assert all(native_lanes(each, 4) == each for each in lanes)
        odd = any("unroll" in str(each.kind.name).lower() for each in candidate.trace.insts)
        if odd and found < 3:
            found += 1
            out = tvm.runtime.empty((ROWS, COLUMNS), "float32")
            module = tvm.compile(candidate.schedule.mod, TARGET)
            module(tvm.runtime.tensor(left), tvm.runtime.tensor(right), out)
            np.testing.assert_allclose(out.numpy(), left @ right, rtol=1e-5, atol=1e-5)
    assert not any("NativeVectors" in reason for reason in replayer.dropped)
    assert found


def vectors(schedule: Schedule) -> list[int]:
    """The extents of all vectorized loops."""
    loops = [
        schedule.get(loop)
        for block in schedule.get_child_blocks(schedule.get_sblock("root"))
        for loop in schedule.get_loops(block)
    ]
    return [int(loop.extent) for loop in loops if loop.kind == ForKind.VECTORIZED]


def padded_convolution() -> tvm.IRModule:
    """Of 4 channels, so that a vector of 64 has 16 pixels, some at the border."""
    image = te.placeholder((1, 16, 16, 4), name="image")
    weight = te.placeholder((3, 3, 4, 4), name="weight")
    out = topi.nn.conv2d_nhwc(image, weight, 1, 1, 1)
    return tvm.IRModule({"main": te.create_prim_func([image, weight, out])})


def longest_choosing(mod: tvm.IRModule, postprocs: list, seed: int) -> int:
    """The lanes of the longest vector of a random schedule that TVM makes a loop of."""
    space = TuneContext(mod, target=TARGET, space_generator="post-order-apply", rand_state=seed)
    trace = random.Random(seed).choice(list(space.generate_design_space())).trace
    candidate = ScreenedReplayer(mod, postprocs, random.Random(seed)).replay(Trace(trace.insts, {}))
    if candidate is None:
        return 0
    loops: list = []
    structural_walk(candidate.schedule.mod["main"].body, (For, loops.append))
    vectors = [loop for loop in loops if loop.kind == ForKind.VECTORIZED and chooses_by(loop)]
    return max((int(loop.extent) for loop in vectors), default=0)


def test_vectors_that_choose_by_the_lane_are_split_by_rows():
    """TVM makes a loop of each, whose indices LLVM misreads."""
    mod = padded_convolution()
    context = TuneContext(mod, target=TARGET, space_generator="post-order-apply", rand_state=0)
    postprocs = list(context.space_generator.postprocs)
    sound = with_native_vectors(postprocs, TARGET)
    assert max(longest_choosing(mod, postprocs, seed) for seed in range(12)) > 4
    # Of 4 lanes, one pixel: TVM finds that they choose alike.
    assert max(longest_choosing(mod, sound, seed) for seed in range(12)) == 4

# SPDX-License-Identifier: Apache-2.0
"""Weights whose layout TVM must not choose."""

import random

import numpy as np
import pytest
from graphs import build
from kernel_chain import TARGET, picked, tir_of
from tvm_ffi import structural_equal

import tvm
from tvm import relax
from tvm.s_tir.meta_schedule import TuneContext
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.model.kernels.fixed_layouts import FREE, keep_layouts
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer, TaskHistory
from tvm_droplet_ms.search_strategy.explorers.random_sampling import RandomExploration
from tvm_droplet_ms.session.roofline import MachineRates
from tvm_droplet_ms.tuning.compile.lowering import lower

RATES = MachineRates(100e9, (1000,), (10e9,))
GENERATOR = np.random.default_rng(0)


def module(shape, body):
    return build(shape, body, num_input=1)


BIAS = GENERATOR.standard_normal((1, 64)).astype("float32")
WEIGHT = GENERATOR.standard_normal((64, 64)).astype("float32")


def quarters(emit, y):
    return [
        emit(relax.op.strided_slice(y, [1], [start], [start + 16], [1]))
        for start in range(0, 64, 16)
    ]


def cell(emit, x):
    """A product of the four quarters of a biased input, as in the cell of an LSTM."""
    a, b, c, d = quarters(emit, emit(relax.op.add(x, relax.const(BIAS))))
    return emit(relax.op.add(emit(relax.op.multiply(a, b)), emit(relax.op.multiply(c, d))))


def first_quarter(emit, x):
    return emit(relax.op.tanh(quarters(emit, emit(relax.op.add(x, relax.const(BIAS))))[0]))


def free_weights(lowered):
    """The numbers of the free weights of each kernel of a lowered module."""
    return [[int(n) for n in (f.attrs or {}).get(FREE, ())] for f in tir_of(lowered)]


@pytest.mark.parametrize("make", [cell, first_quarter])
def test_a_kernel_that_reads_parts_of_a_weight_computes_what_numpy_does(make):
    mod = module((1, 64), make)
    assert free_weights(lower(mod, TARGET)) == [[]]
    x = GENERATOR.standard_normal((1, 64)).astype("float32")
    a, b, c, d = np.split(x + BIAS, 4, axis=1)
    expected = a * b + c * d if make is cell else np.tanh(a)
    for seed in range(3):
        kernels = picked(mod, seed)
        np.testing.assert_allclose(kernels.compile()([x])[0], expected, rtol=1e-4, atol=1e-5)


def whole(emit, x):
    """A product, a bias that is read twice, and an activation."""
    y = emit(relax.op.add(emit(relax.op.matmul(x, relax.const(WEIGHT))), relax.const(BIAS)))
    return emit(relax.op.multiply(y, emit(relax.op.sigmoid(y))))


def mean(emit, x):
    return emit(relax.op.mean(emit(relax.op.add(x, relax.const(BIAS))), [1]))


def broadcast(emit, x):
    return emit(relax.op.multiply(x, relax.const(BIAS)))


@pytest.mark.parametrize(
    ("shape", "make", "free"),
    [((1, 64), whole, [1, 2]), ((1, 64), mean, [1]), ((8, 64), broadcast, [1])],
)
def test_weights_that_are_read_as_a_whole_stay_free(shape, make, free):
    lowered = lower(module(shape, make), TARGET)
    assert free in free_weights(lowered)
    assert structural_equal(keep_layouts()(lowered), lowered)


def test_a_table_that_is_looked_up_stays_as_it_is():
    """So that its workload does too: TVM never packs it."""

    def look_up(emit, x):
        return emit(relax.op.take(relax.const(WEIGHT), emit(relax.op.astype(x, "int32")), axis=0))

    assert [0] in free_weights(lower(module((4,), look_up), TARGET))


@pytest.mark.parametrize("is_pipeline", [False, True])
def test_kernels_of_symbolic_shapes_are_left_alone(is_pipeline, tmp_path):
    mod = module((tvm.tirx.Var("n", "int64"), 64), whole)
    if is_pipeline:
        tune = relax.get_pipeline(
            "droplet_tuning",
            total_trials=0,
            target=TARGET,
            work_dir=str(tmp_path),
            cpu_weight_prepack=True,
        )
        assert len(free_weights(tune(mod))) == 1
    else:
        assert free_weights(lower(mod, TARGET)) == [[1, 2]]


def turned(emit, x):
    """A transposed convolution: a block of its kernel turns the weight's axes."""
    weight = relax.const(np.array([[[-1.5], [2.5]]], "float32"))
    return emit(relax.op.nn.conv1d_transpose(x, weight, strides=2))


def wrong_schedules(function, arrays, expected, draws=24):
    """Whether each of a kernel's random schedules is wrong, by its postprocessors, one by one."""
    mod = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    with fast_tune_contexts():
        context = TuneContext(mod, target=TARGET, space_generator="post-order-apply", rand_state=1)
        schedules = list(context.generate_design_space())
        replayer = ScreenedReplayer(mod, list(context.space_generator.postprocs), random.Random(0))
    found = RandomExploration(replayer, schedules, TaskHistory(mod, TARGET)).ask(draws)
    assert found
    for candidate in found:
        result = tvm.runtime.tensor(np.zeros_like(expected))
        run = tvm.compile(candidate.schedule.mod, TARGET)["main"]
        run(*map(tvm.runtime.tensor, arrays), result)
        yield not np.allclose(result.numpy(), expected, rtol=1e-4, atol=1e-5)


def only_kernel(lowered):
    (kernel,) = (f for f in lowered.functions.values() if isinstance(f, tvm.tirx.PrimFunc))
    return kernel


def test_a_weight_that_a_block_turns_is_not_packed_by_the_turned_index():
    lowered = lower(module((1, 1, 1), turned), TARGET)
    assert free_weights(lowered) == [[]]
    kernel = only_kernel(lowered)
    arrays = [np.array([[[2.0]]], "float32"), np.array([[[-1.5], [2.5]]], "float32")]
    expected = np.array([[[-3.0], [5.0]]], "float32")
    assert not any(wrong_schedules(kernel, arrays, expected))
    assert any(wrong_schedules(kernel.with_attr(FREE, [1]), arrays, expected))


IMAGE = GENERATOR.standard_normal((1, 2, 6, 6)).astype("float32")
PIXELS = GENERATOR.integers(0, 6, (1, 4, 3, 2))
"""The columns and rows of the pixels that a grid takes."""


def sampled():
    """The pixels of a constant grid: a GridSample reads its two halves."""
    grid = (PIXELS * 2 / 5 - 1).astype("float32")

    def body(emit, x):
        return emit(
            relax.op.image.grid_sample(x, relax.const(np.moveaxis(grid, -1, 1)), align_corners=True)
        )

    expected = IMAGE[:, :, PIXELS[0, ..., 1], PIXELS[0, ..., 0]]
    return body, np.ascontiguousarray(np.moveaxis(grid, -1, 1)), expected


def pooled():
    """The means of constant boxes: a RoiAlign reads their four corners."""
    boxes = np.array([[0, 1, 0, 5, 4], [0, 0, 2, 4, 6]], "float32")

    def body(emit, x):
        return emit(
            relax.op.vision.roi_align(
                x, relax.const(boxes), (2, 2), spatial_scale=1.0, sample_ratio=2
            )
        )

    expected = np.array([roi_align(IMAGE[0], *box[1:]) for box in boxes], "float32")
    return body, boxes, expected


def roi_align(image, left, top, right, bottom):
    """The means of 2 by 2 bins, of 2 by 2 samples each."""
    result = np.zeros((len(image), 2, 2))
    for row, column in np.ndindex(4, 4):
        y = top + (bottom - top) * (row + 0.5) / 4
        x = left + (right - left) * (column + 0.5) / 4
        low_y, low_x, high_y, high_x = int(y), int(x), min(int(y) + 1, 5), min(int(x) + 1, 5)
        upper = image[:, low_y, low_x] * (1 - x % 1) + image[:, low_y, high_x] * (x % 1)
        lower = image[:, high_y, low_x] * (1 - x % 1) + image[:, high_y, high_x] * (x % 1)
        result[:, row // 2, column // 2] += (upper * (1 - y % 1) + lower * (y % 1)) / 4
    return result


@pytest.mark.parametrize("make", [sampled, pooled])
def test_a_weight_that_is_read_at_several_indices_is_not_packed_by_one(make):
    body, weight, expected = make()
    lowered = lower(module(IMAGE.shape, body), TARGET)
    assert free_weights(lowered) == [[]]
    kernel = only_kernel(lowered)
    assert not any(wrong_schedules(kernel, [IMAGE, weight], expected, draws=6))
    assert any(wrong_schedules(kernel.with_attr(FREE, [1]), [IMAGE, weight], expected, draws=6))


def test_a_table_that_is_looked_up_by_one_index_is_not_packed():
    """Each step of a decoder looks up one row, and no loop goes along rows."""
    table = GENERATOR.standard_normal((100, 32)).astype("float32")

    def body(emit, x):
        return emit(relax.op.take(relax.const(table), emit(relax.op.astype(x, "int64")), axis=0))

    lowered = lower(module((1, 1), body), TARGET)
    assert not any(free_weights(lowered))
    kernel = next(f for f in tir_of(lowered) if len(f.params) == 3)
    arrays, expected = [table, np.array([[7]], "int64")], table[[[7]]]
    assert not any(wrong_schedules(kernel, arrays, expected, draws=6))
    assert any(wrong_schedules(kernel.with_attr(FREE, [0]), arrays, expected, draws=6))

# SPDX-License-Identifier: Apache-2.0
"""Elementwise kernels with an operand for each channel."""

import re

import numpy as np
import pytest
from graphs import build
from kernel_chain import TARGET, picked, tir_of

import tvm
from tvm import relax
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm_droplet_ms.model.kernels.channel_vectors import mark_channelwise
from tvm_droplet_ms.tuning.compile.lowering import lower


def network(channels, operand_shape=None):
    """``relu(x * scale + shift)``, and the same in NumPy."""
    rng = np.random.default_rng(0)
    scale, shift = rng.standard_normal((2, *(operand_shape or (1, 1, 1, channels))), "float32")

    def body(emit, x):
        y = emit(relax.op.add(emit(relax.op.multiply(x, relax.const(scale))), relax.const(shift)))
        return emit(relax.op.nn.relu(y))

    mod = build((1, 3, 5, channels), body, num_input=1)
    return mod, lambda array: np.maximum(array * scale + shift, 0)


def is_marked(mod):
    return any("tvm_droplet_ms.channelwise" in function.script() for function in tir_of(mod))


@pytest.mark.parametrize(
    ("channels", "marked"),
    [(224, True), (96, True), (24, True), (64, False), (256, False), (100, False), (7, False)],
)
def test_channels_that_vectors_divide_and_tvms_vector_does_not(channels, marked):
    mod, _ = network(channels)
    assert is_marked(lower(mod, TARGET)) == marked
    assert not is_marked(lower(mod, TARGET, is_reference=True))


def test_operands_of_the_whole_shape_are_left():
    mod, _ = network(96, (1, 3, 5, 96))
    assert not is_marked(lower(mod, TARGET))


def test_a_reduction_is_left():
    def body(emit, x):
        y = emit(relax.op.matmul(x, relax.const(np.ones((96, 96), "float32"))))
        return emit(relax.op.add(y, relax.const(np.ones(96, "float32"))))

    assert not is_marked(lower(build((8, 96), body, num_input=1), TARGET))


def test_a_kernel_without_blocks_is_left():
    # TOPI writes scatter_elements with loops of its own: no schedule finds a block named "root".
    tensors = [relax.TensorType(s, t) for s, t in (((4, 8), "float32"), ((2, 8), "int64"))]
    data, rows = (relax.Var(n, t) for n, t in zip(("data", "rows"), tensors, strict=True))
    values = relax.Var("values", relax.TensorType((2, 8), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [data, rows, values], attrs={"num_input": 3}):
        with builder.dataflow():
            y = builder.emit_output(relax.op.scatter_elements(data, rows, values, 0))
        builder.emit_func_output(y)
    lowered = lower(builder.get(), TARGET)
    assert any("scatter" in v.name_hint for v in lowered.get_global_vars())
    assert not is_marked(lowered)


@pytest.mark.parametrize("channels", [224, 96, 24])
def test_vectors_stay_within_the_channels_of_a_pixel(channels):
    """A vector that spans pixels makes LLVM gather the operands."""
    mod, expected = network(channels)
    kernels = picked(mod)
    (pick,) = kernels.picks
    schedule = tvm.s_tir.Schedule(pick.mod)
    pick.trace.apply_to_schedule(schedule, remove_postproc=False)
    (vector,) = re.findall(r"T\.vectorized\((?:T\.int64\()?(\d+)", schedule.mod.script())
    assert channels % int(vector) == 0 and int(vector) >= 8
    x = np.random.default_rng(1).standard_normal((1, 3, 5, channels), "float32")
    np.testing.assert_allclose(kernels.compile()([x])[0], expected(x), rtol=1e-5, atol=1e-6)


def test_a_marked_kernel_is_the_same_function():
    mod, _ = network(96)
    lowered = lower(mod, TARGET, is_reference=True)
    marked = mark_channelwise()(lowered)
    assert is_marked(marked)
    for variable, function in lowered.functions_items():
        if isinstance(function, tvm.tirx.PrimFunc):
            other = marked[variable]
            assert dict(other.attrs) == dict(function.attrs)
            shapes = [
                [list(argument.shape) for argument in ArgInfo.from_prim_func(one)]
                for one in (function, other)
            ]
            assert shapes[0] == shapes[1]


def test_the_pipeline_marks_kernels_too(tmp_path):
    mod, _ = network(96)
    tune = relax.get_pipeline(
        "droplet_tuning", total_trials=0, target=TARGET, work_dir=str(tmp_path)
    )
    assert is_marked(tune(mod))

# SPDX-License-Identifier: Apache-2.0
"""Products of few rows and packed weights, beside NumPy."""

import numpy as np
import pytest
from graphs import apply, build, operators
from kernel_chain import TARGET, Trace, design_space

import tvm
from tvm import relax
from tvm.s_tir import Schedule
from tvm_droplet_ms.model.kernels.lowering_passes import register_schedule_rules
from tvm_droplet_ms.model.narrow_weights import pack_weights
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.tuning.compile.lowering import lower

op = relax.op
RNG = np.random.default_rng(0)
DEPTH, COLUMNS = 96, 72

register_schedule_rules()


def by_blocks(emit, numbers, zeros, scales):
    """ONNX Runtime's: (columns, blocks, rows of a block), with a zero point for each block."""
    columns, depth = numbers.shape
    apart = relax.const(numbers.reshape(columns, zeros.shape[1], -1))
    weight = emit(op.astype(apart, "float32"))
    weight = emit(op.subtract(weight, relax.const(zeros[..., None])))
    weight = emit(op.multiply(weight, relax.const(scales[..., None])))
    return emit(op.permute_dims(emit(op.reshape(weight, (columns, depth)))))


def by_columns(emit, numbers, zeros, scales):
    """PyTorch's weight-only bytes: a scale for each column."""
    weight = emit(op.astype(relax.const(numbers), "float32"))
    return emit(op.permute_dims(emit(op.multiply(weight, relax.const(scales)))))


def dequantized(emit, numbers, zeros, scales):
    """ONNX's ``DequantizeLinear`` along the columns."""
    whole = emit(
        op.dequantize(
            relax.const(numbers.T.copy()),
            relax.const(scales[:, 0].copy()),
            relax.const(zeros[:, 0].astype(numbers.dtype)),
            axis=1,
        )
    )
    return whole


def product(make, rows, numbers, zeros, scales, bias=False):
    def body(emit, x):
        y = emit(op.matmul(x, make(emit, numbers, zeros, scales)))
        return emit(op.add(y, relax.const(np.arange(COLUMNS, dtype="float32")))) if bias else y

    return build((1, rows, DEPTH), body, num_input=1)


def tables(dtype, high, blocks):
    low = -high if dtype == "int8" else 0
    numbers = RNG.integers(low, high, (COLUMNS, DEPTH)).astype(dtype)
    zeros = RNG.integers(low, high, (COLUMNS, blocks)).astype("float32")
    return numbers, zeros, RNG.standard_normal((COLUMNS, blocks)).astype("float32")


CASES = {
    "4 bits in blocks": (by_blocks, tables("uint8", 16, 3)),
    "8 bits in blocks": (by_blocks, tables("uint8", 256, 6)),
    "2 bits in one block": (by_blocks, tables("uint8", 4, 1)),
    "signed bytes by columns": (by_columns, tables("int8", 128, 1)),
    "dequantized signed bytes": (dequantized, tables("int8", 128, 1)),
}


def expected(name, x):
    make, (numbers, zeros, scales) = CASES[name]
    zeros = np.zeros_like(zeros) if make is by_columns else zeros
    zeros, scales = (np.repeat(each, DEPTH // each.shape[1], 1) for each in (zeros, scales))
    return x.astype("float64") @ ((numbers - zeros) * scales).T.astype("float64")


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_every_schedule_multiplies_what_the_weights_stand_for(name, rows):
    make, given = CASES[name]
    mod = apply(pack_weights(), product(make, rows, *given))
    assert "relax.matmul" not in operators(mod)
    lowered = lower(mod, TARGET)
    (variable,) = (var for var in lowered.get_global_vars() if "narrow" in var.name_hint)
    kernel = lowered[variable].with_attr("global_symbol", "main")
    workload = tvm.ir.IRModule({"main": kernel})
    constants = [
        each.value
        for binding in lowered["main"].body.blocks[0].bindings
        if isinstance(binding.value, relax.Call)
        for each in getattr(binding.value.args[-1], "fields", ())
        if isinstance(each, tvm.ir.GenericConst)
    ]
    x = RNG.standard_normal((1, rows, DEPTH)).astype("float32")
    wanted = expected(name, x)
    context, (space,) = design_space(workload)
    for seed in range(3):
        schedule = Schedule(workload, seed=seed + 1)
        Trace(space.trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        assert all(post.apply(schedule) for post in context.space_generator.postprocs)
        library = tvm.compile(schedule.mod, TARGET)
        result = tvm.runtime.empty(kernel.params[-1].shape, "float32")
        library["main"](tvm.runtime.tensor(x.reshape(rows, DEPTH)), *constants, result)
        found = result.numpy()[:, :COLUMNS].reshape(wanted.shape)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("name", CASES)
def test_whole_graphs_compute_the_same(name, rows):
    """Eight rows are multiplied by weights of float32."""
    make, given = CASES[name]
    mod = prepare_graph()(product(make, rows, *given, bias=True))
    assert ("narrow_product" in mod.script()) == (rows == 1)
    machine = relax.VirtualMachine(tvm.compile(lower(mod, TARGET), TARGET), tvm.cpu())
    x = RNG.standard_normal((1, rows, DEPTH)).astype("float32")
    found = machine["main"](tvm.runtime.tensor(x)).numpy()
    wanted = expected(name, x) + np.arange(COLUMNS)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())

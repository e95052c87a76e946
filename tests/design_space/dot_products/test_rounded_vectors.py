# SPDX-License-Identifier: Apache-2.0
"""Vectors that are rounded to bfloat16 by one instruction, against ml_dtypes."""

import ml_dtypes
import numpy as np
import pytest

import tvm
from tvm import te, tirx
from tvm.s_tir import Schedule
from tvm.target import Target
from tvm_droplet_ms.design_space.dot_products.find_dot import has_features
from tvm_droplet_ms.design_space.dot_products.rounded_vectors import RoundVectors, rounded
from tvm_droplet_ms.host import host_target

SERVER = Target({"kind": "llvm", "mcpu": "sapphirerapids"})
NARROW = Target({"kind": "llvm", "mcpu": "cascadelake"})
HOST = host_target()
has_instruction = pytest.mark.skipif(
    not has_features(HOST, "avx512f", "avx512bf16"), reason="this CPU has no AVX512_BF16"
)
ROWS, COLUMNS = 6, 96


def scheduled(value=lambda x: x, *, vectors=2, columns=COLUMNS, dtype="int64", torn=False):
    """A kernel that rounds what ``value`` makes, in loops of so many vectors of 16."""
    data = te.placeholder((ROWS, columns), name="data")
    bias = te.placeholder((columns,), name="bias")
    result = te.compute(
        (ROWS, columns), lambda i, j: rounded(value(data[i, j] + bias[j])), name="result"
    )
    kernel = te.create_prim_func([data, bias, result], index_dtype_override=dtype)
    schedule = Schedule(kernel)
    row, column = schedule.get_loops("result")
    if torn:
        schedule.split(row, [None, 4])
    _, inner, lane = schedule.split(column, [None, vectors, 16])
    schedule.unroll(inner)
    schedule.vectorize(lane)
    return schedule.mod


def calls(mod):
    """How often one vector is rounded, and two at once."""
    text = mod.script()
    return tuple(text.count(f'"tvm_droplet_ms_round_{name}"') for name in ("one", "two"))


def sample(columns=COLUMNS):
    """Numbers of all sizes, ties among them, and what is none."""
    rng = np.random.default_rng(0)
    numbers = rng.standard_normal((ROWS, columns)) * 10.0 ** rng.integers(-30, 30, (ROWS, columns))
    bits = numbers.astype("float32").view("uint32")
    bits[:, ::3] = bits[:, ::3] >> 16 << 16 | 0x8000  # Ties.
    found = bits.view("float32")
    found[0, :4] = np.inf, -np.inf, np.nan, 0.0
    return found


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (0, 1)),
        ({"vectors": 3}, (1, 0)),
        ({"vectors": 6}, (0, 1)),
        ({"torn": True}, (0, 1)),
        ({"dtype": "int32"}, (0, 1)),
        ({"value": lambda x: te.max(x, tirx.const(0.0, "float32"))}, (0, 1)),
        ({"value": lambda x: te.sin(x)}, (0, 0)),
    ],
    ids=["two", "three", "six", "torn rows", "short indices", "relu", "unknown operator"],
)
def test_vectors_are_rounded_two_at_a_time(options, expected):
    assert calls(RoundVectors(SERVER)(scheduled(**options))) == expected


def test_a_cpu_without_the_instruction_keeps_the_addition():
    assert calls(RoundVectors(NARROW)(scheduled())) == (0, 0)


def test_the_code_has_the_instruction():
    code = tvm.tirx.build(RoundVectors(SERVER)(scheduled()), target=SERVER).inspect_source("asm")
    assert "vcvtne2ps2bf16" in code
    code = tvm.tirx.build(scheduled(), target=SERVER).inspect_source("asm")
    assert "vcvtne2ps2bf16" not in code


@has_instruction
@pytest.mark.parametrize("options", [{}, {"vectors": 3}, {"vectors": 6}, {"torn": True}])
def test_numbers_are_rounded_to_the_nearest_and_ties_to_even(options):
    data, bias = sample(), np.zeros(COLUMNS, "float32")
    library = tvm.tirx.build(RoundVectors(HOST)(scheduled(**options)), target=HOST)
    out = tvm.runtime.empty(data.shape, "bfloat16")
    library["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(bias), out)
    expected = data.astype(ml_dtypes.bfloat16)
    # The instruction takes numbers without a leading one for zeros.
    small = np.abs(data) < np.finfo("float32").tiny
    found = out.numpy()
    np.testing.assert_array_equal(found[~small].astype("f4"), expected[~small].astype("f4"))


@has_instruction
def test_each_lane_has_its_own_operands():
    data, bias = np.ones((ROWS, COLUMNS), "float32"), np.arange(COLUMNS, dtype="float32")
    made = scheduled(lambda x: te.max(x * tirx.const(2.0, "float32"), tirx.const(9.0, "float32")))
    library = tvm.tirx.build(RoundVectors(HOST)(made), target=HOST)
    out = tvm.runtime.empty(data.shape, "bfloat16")
    library["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(bias), out)
    expected = np.maximum(2 * (data + bias), 9).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(out.numpy().astype("f4"), expected.astype("f4"))


@has_instruction
def test_an_operand_that_several_lanes_share():
    data = te.placeholder((ROWS, COLUMNS), name="data")
    scale = te.placeholder((COLUMNS // 16,), name="scale")
    result = te.compute(
        (ROWS, COLUMNS), lambda i, j: rounded(data[i, j] * scale[j // 16]), name="result"
    )
    schedule = Schedule(te.create_prim_func([data, scale, result], index_dtype_override="int64"))
    _, inner, lane = schedule.split(schedule.get_loops("result")[1], [None, 2, 16])
    schedule.vectorize(lane)
    library = tvm.tirx.build(RoundVectors(HOST)(schedule.mod), target=HOST)
    x, scales = np.ones((ROWS, COLUMNS), "float32"), np.arange(6, dtype="float32")
    out = tvm.runtime.empty(x.shape, "bfloat16")
    library["main"](tvm.runtime.tensor(x), tvm.runtime.tensor(scales), out)
    np.testing.assert_array_equal(out.numpy().astype("f4"), x * np.repeat(scales, 16))


OPERATORS = {
    "floor": (lambda x: te.floor(x), np.floor),
    "absolute": (lambda x: te.abs(x), np.abs),
    "bits": (
        lambda x: tirx.reinterpret(
            "float32", tirx.reinterpret("int32", x) + tirx.const(1 << 23, "int32")
        ),
        lambda x: 2 * x,
    ),
    "choice": (
        lambda x: tirx.Select(x < tirx.const(0.0, "float32"), x * x, x),
        lambda x: np.where(x < 0, x * x, x),
    ),
    "whole": (
        lambda x: tirx.shift_left(x.astype("int32"), tirx.const(2, "int32")).astype("float32"),
        lambda x: 4 * np.trunc(x),
    ),
}


@has_instruction
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_those_of_numpy(name):
    make, expected = OPERATORS[name]
    made = RoundVectors(HOST)(scheduled(make))
    assert calls(made) == (0, 1)
    data = np.random.default_rng(0).uniform(-50, 50, (ROWS, COLUMNS)).astype("float32")
    out = tvm.runtime.empty(data.shape, "bfloat16")
    zeros = tvm.runtime.tensor(np.zeros(COLUMNS, "float32"))
    tvm.tirx.build(made, target=HOST)["main"](tvm.runtime.tensor(data), zeros, out)
    wanted = expected(data).astype(ml_dtypes.bfloat16).astype("f4")
    np.testing.assert_array_equal(out.numpy().astype("f4"), wanted)

# SPDX-License-Identifier: Apache-2.0
"""Loops that no tile divides are partitioned in kernels with indices of 64 bits, as of 32."""

import numpy as np
import pytest

import tvm
from tvm import s_tir, te, tirx
from tvm.s_tir import Schedule
from tvm.target import Target
from tvm_droplet_ms.design_space.register_tiles.partitions import PARTITIONED, NarrowPartitions
from tvm_droplet_ms.measure.build import build_scheduled
from tvm_droplet_ms.tuning.compile.finishing_passes import finishing_passes

TARGET = Target({"kind": "llvm", "num-cores": 1})
ROWS = 67


def scheduled(index, data="float32"):
    x = te.placeholder((5, ROWS), name="x", dtype=data)
    y = te.compute((5, ROWS), lambda i, j: x[i, j] + x[i, j], "y")
    function = te.create_prim_func([x, y], index_dtype_override=index)
    schedule = Schedule(tvm.IRModule({"main": function}))
    _, row = schedule.get_loops(schedule.get_sblock("y"))
    tiles, _ = schedule.split(row, [None, 16])
    schedule.annotate(tiles, PARTITIONED, True)
    return schedule.mod


def inner_loops(mod):
    """Number of innermost loops after TVM's passes up to the one that partitions."""
    passes = [
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
        tirx.transform.NarrowDataType(32),
        s_tir.transform.LoopPartition(),
    ]
    lowered = tvm.transform.Sequential(passes)(mod)
    return lowered.script().count("y_1[")


def test_tvm_partitions_indices_of_32_bits_alone():
    """If this fails, TVM does it by itself, and the pass can go."""
    assert inner_loops(scheduled("int32")) == 2
    assert inner_loops(scheduled("int64")) == 1


def test_narrowed_kernels_are_partitioned():
    assert inner_loops(NarrowPartitions()(scheduled("int64"))) == 2
    finished = tvm.transform.Sequential(finishing_passes(TARGET, []))(scheduled("int64"))
    assert inner_loops(finished) == 2


@pytest.mark.parametrize("data", ["float32", "int64"])
def test_they_compute_the_same(data):
    """64-bit numbers stay, because TVM narrows none of a kernel that has them."""
    x = np.arange(5 * ROWS).reshape(5, ROWS).astype(data)
    out = tvm.runtime.empty(x.shape, data)
    build_scheduled(scheduled("int64", data), TARGET)["main"](tvm.runtime.tensor(x), out)
    np.testing.assert_array_equal(out.numpy(), 2 * x)


def test_other_kernels_are_left_alone():
    mod = scheduled("int64")
    for kept in (scheduled("int32"), scheduled("int64", "int64")):
        assert NarrowPartitions()(kept)["main"].same_as(kept["main"])
    plain = tvm.IRModule({"main": mod["main"].without_attr("global_symbol")})
    assert "int64" not in NarrowPartitions()(plain).script()


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(lambda j: j * j * j * j * j * j, id="product"),
        pytest.param(lambda j: (j * j * j * j * j * j) % 1000003, id="remainder"),
        pytest.param(lambda j: j * 3_000_000_000, id="constant"),
    ],
)
def test_numbers_that_need_64_bits_keep_them(number):
    x = te.placeholder((5, ROWS), name="x")

    def added(i, j):
        return x[i, j] + number(j).astype("float32")

    function = te.create_prim_func(
        [x, te.compute((5, ROWS), added, "y")], index_dtype_override="int64"
    )
    schedule = Schedule(tvm.IRModule({"main": function}))
    outer, _ = schedule.get_loops(schedule.get_sblock("y"))
    tiles, _ = schedule.split(outer, [None, 2])
    schedule.annotate(tiles, PARTITIONED, True)
    out = tvm.runtime.empty((5, ROWS))
    zeros = tvm.runtime.tensor(np.zeros((5, ROWS), "float32"))
    build_scheduled(schedule.mod, TARGET)["main"](zeros, out)
    expected = number(np.arange(ROWS)).astype("float32")
    np.testing.assert_array_equal(out.numpy(), np.tile(expected, (5, 1)))


def test_scalar_parameters_keep_their_type():
    function = scheduled("int64")["main"]
    length = tirx.Var("length", "int64")
    wider = tvm.tirx.PrimFunc([*function.params, length], function.body, attrs=function.attrs)
    assert NarrowPartitions()(tvm.IRModule({"main": wider}))["main"].same_as(wider)

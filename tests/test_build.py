# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""The builder for CPU candidates: what it builds, what it leaves out, and how it fails."""

import sys
from typing import Any

import numpy as np

import tvm
from tvm import te
from tvm.ir import IRModule
from tvm.s_tir import Schedule, TensorIntrin
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult, LocalBuilder
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.script import tirx as T
from tvm.tirx import PrimFunc, Var
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import cpu_build_function, cpu_builder

N = 16


@T.prim_func(s_tir=True)
def multiply_add_description(
    a: T.Buffer((1,), "float32", offset_factor=1),
    b: T.Buffer((N,), "float32", offset_factor=1),
    c: T.Buffer((N,), "float32", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(c[0:N], a[0:1], b[0:N])
        T.writes(c[0:N])
        for i in T.serial(0, N):
            with T.sblock("update"):
                vi = T.axis.remap("S", [i])
                c[vi] = c[vi] + a[0] * b[vi]


@T.prim_func(s_tir=True)
def multiply_add_vector(
    a: T.Buffer((1,), "float32", offset_factor=1),
    b: T.Buffer((N,), "float32", offset_factor=1),
    c: T.Buffer((N,), "float32", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(c[0:N], a[0:1], b[0:N])
        T.writes(c[0:N])
        c[T.ramp(T.int32(0), 1, N)] = c.vload([0], f"float32x{N}") + T.broadcast(a[0], N) * b.vload(
            [0], f"float32x{N}"
        )


def _matmul() -> IRModule:
    return IRModule({"main": te.create_prim_func(te_workload.matmul(N, N, N))})


def _build(builder: LocalBuilder, mod: IRModule) -> BuilderResult:
    (result,) = builder.build([BuilderInput(mod, host_target())])
    return result


def _assert_multiplies(result: BuilderResult) -> None:
    assert result.error_msg is None
    module = tvm.runtime.load_module(str(result.artifact_path))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((N, N), dtype=np.float32) for _ in range(2))
    out = tvm.runtime.tensor(np.zeros((N, N), dtype=np.float32))
    module["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4, atol=1e-4)


def test_a_build_is_right_and_needs_no_tensor_intrinsics() -> None:
    build = cpu_build_function()

    def build_and_check(mod: IRModule, target: Any, params: Any) -> Any:
        module = build(mod, target, params)
        assert "tvm.s_tir.tensor_intrin" not in sys.modules
        assert "tvm_droplet_ms" not in sys.modules
        return module

    _assert_multiplies(_build(LocalBuilder(max_workers=1, f_build=build_and_check), _matmul()))


def test_a_tensorized_schedule_builds_where_its_intrinsic_is_unknown() -> None:
    name = "test_multiply_add"
    TensorIntrin.register(name, multiply_add_description, multiply_add_vector, override=True)
    schedule = Schedule(_matmul())
    block = schedule.get_sblock("C")
    row, column, reduction = schedule.get_loops(block)
    schedule.reorder(row, reduction, column)
    schedule.decompose_reduction(block, reduction)
    schedule.tensorize(column, name)
    assert "broadcast" in schedule.mod.script().lower()
    _assert_multiplies(_build(cpu_builder(max_workers=1), schedule.mod))


def test_a_build_that_fails_is_a_worded_result() -> None:
    free = Var("free_variable", "int32")
    body = tvm.tirx.Evaluate(tvm.tirx.call_extern("int32", "function", free))
    func = PrimFunc([], body).with_attr({"global_symbol": "main", "s_tir": True})
    result = _build(cpu_builder(max_workers=1), IRModule({"main": func}))
    assert result.artifact_path is None
    assert "free_variable" in str(result.error_msg)


def test_workers_and_time_limit_are_those_asked_for() -> None:
    builder = cpu_builder(max_workers=1, timeout_sec=12.0)
    assert (builder.max_workers, builder.timeout_sec) == (1, 12.0)

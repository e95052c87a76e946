# SPDX-License-Identifier: Apache-2.0
"""Kernels with the tensor intrinsics of x86"""

# pylint: disable=missing-function-docstring

import numpy as np
import pytest

import tvm
import tvm.testing
from tvm import te
from tvm.s_tir.schedule import Schedule
from tvm.s_tir.tensor_intrin.x86 import AVX512_DOT_16x4_INTRIN, VNNI_DOT_16x4_INTRIN
from tvm.target.codegen import llvm_get_system_cpu, target_has_features
from tvm.testing import env

GROUPS = 8


def _dot_products(intrin: str) -> tvm.IRModule:
    """Sixteen sums of products of bytes, four of them at a time."""
    a = te.placeholder((GROUPS, 4), "uint8", name="a")
    w = te.placeholder((GROUPS, 16, 4), "int8", name="w")
    g, k = te.reduce_axis((0, GROUPS), name="g"), te.reduce_axis((0, 4), name="k")
    c = te.compute(
        (16,),
        lambda i: te.sum(a[g, k].astype("int32") * w[g, i, k].astype("int32"), axis=[g, k]),
        name="c",
    )
    sch = Schedule(tvm.IRModule({"main": te.create_prim_func([a, w, c])}))
    block = sch.get_sblock("c")
    i, g, k = sch.get_loops(block)
    sch.reorder(g, i, k)
    sch.decompose_reduction(block, g)
    sch.tensorize(i, intrin)
    return sch.mod


def _is_x86() -> bool:
    return env.has_llvm() and "x86_64" in tvm.target.codegen.llvm_get_system_triple()


@pytest.mark.skipif(not env.has_llvm(), reason="need llvm")
@pytest.mark.parametrize(
    "intrin, mcpu, instruction",
    [
        (VNNI_DOT_16x4_INTRIN, "cascadelake", "vpdpbusd"),
        (AVX512_DOT_16x4_INTRIN, "skylake-avx512", "vpmaddubsw"),
    ],
)
def test_compiles_to_its_instruction(intrin, mcpu, instruction):
    target = tvm.target.Target(
        {"kind": "llvm", "mtriple": "x86_64-unknown-linux-gnu", "mcpu": mcpu}
    )
    lib = tvm.tirx.build(_dot_products(intrin), target=target)
    assert instruction in lib.inspect_source("asm")


@pytest.mark.skipif(not _is_x86(), reason="need an x86 host")
@pytest.mark.parametrize(
    "intrin, feature, largest",
    # vpmaddubsw saturates: two products of larger weights are no signed word.
    [(VNNI_DOT_16x4_INTRIN, "avx512vnni", 127), (AVX512_DOT_16x4_INTRIN, "avx512bw", 64)],
)
def test_is_exact(intrin, feature, largest):
    target = tvm.target.Target({"kind": "llvm", "mcpu": llvm_get_system_cpu()})
    offered = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    if not (target_has_features(feature, target) and offered.get(feature, False)):
        pytest.skip(f"the host has no {feature}")
    rng = np.random.default_rng(0)
    a = rng.integers(0, 256, (GROUPS, 4)).astype("uint8")
    w = rng.integers(-largest, largest + 1, (GROUPS, 16, 4)).astype("int8")
    a[0], w[0, 0], w[0, 1] = 255, largest, -largest
    c = tvm.runtime.empty((16,), "int32")
    lib = tvm.compile(_dot_products(intrin), target=target)
    lib["main"](tvm.runtime.tensor(a), tvm.runtime.tensor(w), c)
    expected = np.einsum("gk,gik->i", a.astype("int32"), w.astype("int32"))
    np.testing.assert_array_equal(c.numpy(), expected)


if __name__ == "__main__":
    tvm.testing.main()

# SPDX-License-Identifier: Apache-2.0
"""Kernels that are written without blocks."""

import pytest
from tvm_ffi.structural import structural_equal

from tvm import te
from tvm.ir import IRModule
from tvm.script import tirx as T
from tvm.target import Target
from tvm_droplet_ms.model.kernels.kernel_pass import blocks_in
from tvm_droplet_ms.model.kernels.lowering_passes import keep_written

CPU, GPU = Target("llvm"), Target({"kind": "cuda", "arch": "sm_80"})


@T.prim_func(s_tir=True)
def written(a: T.Buffer((8,), "float32"), b: T.Buffer((8,), "float32")):
    for i in range(8):
        b[i] = a[i] * T.float32(2)


def blocks(function):
    return [block.name_hint for block in blocks_in(function.body)]


@pytest.mark.parametrize(("target", "names"), [(CPU, ["scheduled"]), (GPU, [])], ids=["CPU", "GPU"])
def test_statements_become_a_block_on_a_cpu_alone(target, names):
    """A GPU's loops around the block would be bound to threads, as those inside it may be."""
    with target:
        kept = keep_written()(IRModule({"main": written}))["main"]
    assert [name for name in blocks(kept) if name != "root"] == names


def test_kernels_of_blocks_are_left_as_they_are():
    a = te.placeholder((8,), name="a")
    function = te.create_prim_func([a, te.compute((8,), lambda i: a[i] + 1)])
    with CPU:
        kept = keep_written()(IRModule({"main": function}))["main"]
    assert structural_equal(kept, function)

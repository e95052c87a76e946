# SPDX-License-Identifier: Apache-2.0
"""Instruction sets of targets, according to LLVM's documentation of the CPUs."""

import pytest

from tvm.target import Target
from tvm_droplet_ms.cost_model.instruction_set import instruction_set

ARM = "aarch64-linux-gnu"


@pytest.mark.parametrize(
    "target, expected",
    [
        ({"mcpu": "znver4"}, "llvm avx512f"),
        ({"mcpu": "znver4", "num-cores": 64}, "llvm avx512f"),
        ({"mcpu": "rocketlake"}, "llvm avx512f"),
        ({"mcpu": "haswell"}, "llvm avx2"),
        ({"mcpu": "znver4", "mattr": ["-avx512f"]}, "llvm avx2"),
        ({"mcpu": "sandybridge"}, "llvm avx"),
        ({"mcpu": "x86-64"}, "llvm sse2"),
        ({"mtriple": ARM, "mcpu": "cortex-a72"}, "llvm neon"),
        ({"mtriple": ARM, "mcpu": "neoverse-v1"}, "llvm sve"),
        ({"mtriple": "riscv64-unknown-linux-gnu", "mattr": ["+v"]}, "llvm v"),
        ({"mtriple": "riscv64-unknown-linux-gnu"}, "llvm scalar"),
        ({"kind": "cuda", "arch": "sm_80"}, "cuda sm_80"),
        ({"kind": "opencl"}, "opencl"),
    ],
)
def test_instruction_set_of_target(target: dict, expected: str):
    assert instruction_set(Target({"kind": "llvm"} | target)) == expected

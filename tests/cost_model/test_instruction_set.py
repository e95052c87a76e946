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

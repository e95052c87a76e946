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
"""Where the numbers of a CPU come from."""

import pytest

from tvm.target import Target
from tvm.target.codegen import llvm_get_system_cpu
from tvm_droplet_ms.draft.hardware import (
    Hardware,
    hardware_of,
    measured,
    read_caches,
)


@pytest.fixture
def sysfs(tmp_path):
    """48 KiB of L1 data beside 64 KiB of instructions, 2 MiB of L2, 32 MiB of L3."""
    caches = [(1, "Data", "48K"), (1, "Instruction", "64K"), (2, "Unified", "2048K")]
    for index, (level, kind, size) in enumerate([*caches, (3, "Unified", "32M")]):
        directory = tmp_path / f"index{index}"
        directory.mkdir()
        for name, value in {"level": level, "type": kind, "size": size}.items():
            (directory / name).write_text(f"{value}\n")
        (directory / "coherency_line_size").write_text("64\n")
    return tmp_path


HOST = Target({"kind": "llvm", "mcpu": str(llvm_get_system_cpu()), "num-cores": 2})


@pytest.mark.parametrize(
    ("target", "bits", "registers"),
    [
        ({"mcpu": "znver4"}, 512, 32),
        ({"mcpu": "haswell"}, 256, 16),
        ({"mtriple": "x86_64-linux-gnu", "mcpu": "x86-64"}, 128, 16),
        ({"mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"}, 128, 32),
    ],
)
@pytest.mark.filterwarnings("ignore:the target's mcpu")
def test_vectors_are_those_of_the_target(target, bits, registers):
    found = hardware_of(Target({"kind": "llvm", "num-cores": 3} | target))
    assert (8 * found.vector_bytes, found.registers, found.cores) == (bits, registers, 3)
    assert found.flops == 4 * (bits // 32) * 3.0
    assert "LLVM" in found.sources["vector_bytes"]


def test_caches_of_this_machine_are_those_of_sysfs(sysfs):
    found = hardware_of(HOST, sysfs=sysfs)
    assert found.caches == (48 << 10, 2 << 20, 32 << 20)
    assert found.sources["caches"] == str(sysfs)
    assert f"caches = {found.caches}: {sysfs}" in found.describe()
    assert "launch = 5000.0: default" in found.describe()


def test_no_sysfs_leaves_the_defaults(tmp_path):
    assert read_caches(tmp_path / "absent") == {}
    assert hardware_of(HOST, sysfs=tmp_path / "absent").caches == Hardware.caches


def test_another_cpu_never_gets_the_caches_of_this_machine(sysfs):
    other = Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"})
    with pytest.warns(UserWarning, match="mcpu is 'cortex-a72', not this machine: its caches"):
        found = hardware_of(other, sysfs=sysfs)
    assert found.caches == Hardware.caches
    given = hardware_of(other, sysfs=sysfs, caches=(32 << 10, 1 << 20), line=64)
    assert given.caches == (32 << 10, 1 << 20)
    assert given.sources["caches"] == "given"
    assert len(given.bandwidths) == 3


def test_no_cpu_is_refused():
    with pytest.raises(ValueError, match="expected one of kind llvm"):
        hardware_of(Target({"kind": "cuda", "arch": "sm_80"}))


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ({"cores": 0}, "cores is 0, expected a positive integer"),
        ({"vector_bytes": 0}, "vector_bytes is 0, expected a positive integer"),
        ({"vector_bytes": 24}, "vector_bytes is 24, expected a power of two"),
        ({"registers": -1}, "registers is -1, expected a positive integer"),
        ({"line": 48}, "line is 48, expected a power of two"),
        ({"caches": (1 << 20, 32 << 10, 8 << 20)}, r"caches is \(1048576, .*that grow from L1"),
        ({"caches": ()}, r"caches is \(\), expected"),
        ({"caches": (32 << 10,)}, "bandwidths is .* for 1 caches, expected one for"),
        ({"flops": 0.0}, "flops is 0.0, expected a positive number"),
        ({"flops": float("nan")}, "flops is nan, expected a positive number"),
        ({"bandwidths": (1.0, -2.0, 1.0, 1.0)}, r"bandwidths\[1\] is -2.0, expected a positive"),
        ({"launch": 0.0}, "launch is 0.0, expected a positive number"),
    ],
)
def test_impossible_numbers_are_refused(number, message):
    with pytest.raises(ValueError, match=message):
        Hardware(**number)


def test_rates_are_measured_within_each_level():
    sizes = []

    def bandwidth(size):
        sizes.append(size)
        return float(len(sizes))

    cpu = Hardware(caches=(32 << 10, 1 << 20, 8 << 20), flops=50.0, bandwidths=(80.0, 1, 1, 1))
    found = measured(cpu, gflops=lambda: 100.0, bandwidth=bandwidth)
    # Half of L2, half of L3, and four times L3.
    assert sizes == [512 << 10, 4 << 20, 32 << 20]
    assert found.bandwidths == (160.0, 1.0, 2.0, 3.0)
    assert (found.flops, found.sources["flops"]) == (100.0, "measured: BLAS")

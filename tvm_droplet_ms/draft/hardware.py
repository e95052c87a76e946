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
"""The numbers of a CPU that the formula of ``penalties`` needs, each with where it comes from."""

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

SYSFS = Path("/sys/devices/system/cpu/cpu0/cache")
"""Where Linux tells what the caches of the first CPU are. ``getconf`` reads CPUID, which some
virtual machines answer wrongly."""

VECTOR_BYTES = {
    "avx512f": 64,
    "avx2": 32,
    "avx": 32,
    "sse2": 16,
    "neon": 16,
    "sve2": 16,
    "sve": 16,
    "v": 16,
}
"""Bytes of a vector register by LLVM's name of the extension; the least where it may vary.
``llvm_get_vector_width`` answers 512 bits for every x86-64 (``llvm_instance.cc``)."""

MANY_REGISTERS = frozenset({"avx512f", "neon", "sve", "sve2", "v"})
"""The extensions with 32 vector registers; others have 16."""

CLOCK = 3.0
"""Cycles of a nanosecond where nothing was measured."""


@dataclass(frozen=True)
class Hardware:
    """One CPU.

    Parameters
    ----------
    cores : int
        Threads that a parallel loop may use.
    vector_bytes : int
        Bytes of a vector register.
    registers : int
        Vector registers.
    caches : tuple[int, ...]
        Bytes of the caches of one core, from L1 on.
    line : int
        Bytes of a cache line, a power of two.
    flops : float
        Single-precision operations of one core in a nanosecond, with full vectors.
    bandwidths : tuple[float, ...]
        Bytes in a nanosecond into the registers, then into each cache from the level behind it.
    launch : float
        Nanoseconds to start a parallel loop.
    sources : Mapping[str, str]
        Where each number comes from, by its name.

    Raises
    ------
    ValueError
        If a number is impossible; names it, its value and what was expected.
    """

    cores: int = 1
    vector_bytes: int = 16
    registers: int = 16
    caches: tuple[int, ...] = (32 << 10, 1 << 20, 8 << 20)
    line: int = 64
    flops: float = 16.0 * CLOCK
    bandwidths: tuple[float, ...] = (64.0 * CLOCK, 32.0 * CLOCK, 16.0 * CLOCK, 6.0 * CLOCK)
    launch: float = 5000.0
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        for name in ("cores", "vector_bytes", "registers", "line"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}, expected a positive integer")
        for name in ("vector_bytes", "line"):
            value = getattr(self, name)
            if value & (value - 1):
                raise ValueError(f"{name} is {value}, expected a power of two")
        if not self.caches or list(self.caches) != sorted(set(self.caches)) or self.caches[0] < 1:
            raise ValueError(f"caches is {self.caches}, expected sizes in bytes that grow from L1")
        if len(self.bandwidths) != len(self.caches) + 1:
            raise ValueError(
                f"bandwidths is {self.bandwidths} for {len(self.caches)} caches, expected one for "
                "the registers and one for each cache"
            )
        rates = {"flops": self.flops, "launch": self.launch}
        rates |= {f"bandwidths[{n}]": value for n, value in enumerate(self.bandwidths)}
        for name, rate in rates.items():
            if not (np.isfinite(rate) and rate > 0.0):
                raise ValueError(f"{name} is {rate}, expected a positive number")

    @property
    def lanes(self) -> int:
        """Single-precision numbers in a vector."""
        return self.vector_bytes // 4

    def describe(self) -> str:
        """A line for each number: its name, its value and where it comes from."""
        names = [name for name in vars(self) if name != "sources"]
        return "\n".join(
            f"{name} = {getattr(self, name)}: {self.sources.get(name, 'default')}" for name in names
        )


def hardware_of(target: Any, *, sysfs: Path = SYSFS, **by_hand: Any) -> Hardware:
    """Read what is known of the CPU of a target.

    Parameters
    ----------
    target : tvm.target.Target
        A target of kind ``llvm``.
    sysfs : Path
        Where the caches of this machine are told; only read where the target is this machine.
    by_hand : Any
        Numbers of ``Hardware`` that the caller knows, by name. They win.

    Returns
    -------
    hardware : Hardware
        Rates are defaults; ``measured`` measures them.

    Raises
    ------
    ValueError
        If the target is no CPU, or a number is impossible.

    Warns
    -----
    UserWarning
        If the target is another CPU than this machine, whose caches are then defaults.
    """
    from tvm.target.codegen import llvm_get_system_cpu

    from ..cost_model.instruction_set import instruction_set

    if target.kind.name != "llvm":
        raise ValueError(f"target is {target}, expected one of kind llvm")
    extension = instruction_set(target).removeprefix("llvm ")
    found: dict[str, tuple[Any, str]] = {
        "vector_bytes": (VECTOR_BYTES.get(extension, 4), f"LLVM: {extension}"),
        "registers": (32 if extension in MANY_REGISTERS else 16, f"LLVM: {extension}"),
    }
    lanes = found["vector_bytes"][0] // 4
    found["flops"] = (4.0 * lanes * CLOCK, f"2 vector FMA a cycle, {CLOCK} GHz")
    if "num-cores" in target.attrs:
        found["cores"] = (int(target.attrs["num-cores"]), "num-cores of the target")
    cpu = str(target.attrs.get("mcpu", ""))
    if cpu == str(llvm_get_system_cpu()):
        found |= read_caches(sysfs)
    elif not {"caches", "line"} <= set(by_hand):
        warnings.warn(
            f"the target's mcpu is {cpu!r}, not this machine: its caches are not known, and "
            "defaults stand for them. Give caches=(L1, L2, L3) in bytes and line=64",
            stacklevel=2,
        )
    found |= {name: (value, "given") for name, value in by_hand.items()}
    values = {name: value for name, (value, _) in found.items()}
    caches = values.get("caches", Hardware.caches)
    if "bandwidths" not in values and len(caches) + 1 < len(Hardware.bandwidths):
        behind = Hardware.bandwidths[-1]
        values["bandwidths"] = (*Hardware.bandwidths[: len(caches)], behind)
    return Hardware(
        **values, sources=MappingProxyType({name: whence for name, (_, whence) in found.items()})
    )


def read_caches(sysfs: Path = SYSFS) -> dict[str, tuple[Any, str]]:
    """Read the sizes of this machine's data caches and of their lines.

    Parameters
    ----------
    sysfs : Path
        The directory of ``index0``, ``index1`` and so on.

    Returns
    -------
    found : dict[str, tuple[Any, str]]
        "caches" and "line", each with where it comes from; empty where there is no such directory.
        At most three levels.
    """
    sizes: dict[int, int] = {}
    lines: set[int] = set()
    for index in sorted(sysfs.glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            sizes[level] = _bytes((index / "size").read_text().strip())
            lines.add(int((index / "coherency_line_size").read_text()))
        except (OSError, ValueError):
            continue
    caches = tuple(sizes[level] for level in sorted(sizes))[:3]
    if not caches or list(caches) != sorted(set(caches)):
        return {}
    return {
        "caches": (caches, os.fspath(sysfs)),
        "line": (max(lines), os.fspath(sysfs)),
    }


def _bytes(size: str) -> int:
    """The bytes that sysfs writes as ``32K``."""
    units = {"K": 10, "M": 20, "G": 30}
    return int(size[:-1]) << units[size[-1]] if size[-1] in units else int(size)


def measured(
    hardware: Hardware,
    *,
    gflops: Callable[[], float] | None = None,
    bandwidth: Callable[[int], float] | None = None,
) -> Hardware:
    """Replace the rates of a CPU by those of this machine; takes about a quarter of a second.

    Parameters
    ----------
    hardware : Hardware
        The machine that this runs on.
    gflops : Callable[[], float] | None
        Measures the peak rate of one core in GFLOP/s; NumPy's BLAS by default.
    bandwidth : Callable[[int], float] | None
        Measures the bytes that move in a nanosecond where so many are touched; a copy by default.

    Returns
    -------
    measured : Hardware
        With the rates of the registers as before, relative to the new peak.
    """
    from ..host import blas_gflops, copy_bandwidth

    peak = (gflops or (lambda: blas_gflops(1, size=512)))()
    levels = bandwidth or (lambda size: copy_bandwidth(size) / 1e9)
    # Half of a level fits it; four times the last level comes from behind it.
    sizes = [*(size // 2 for size in hardware.caches[1:]), 4 * hardware.caches[-1]]
    rates = tuple(levels(min(size, 256 << 20)) for size in sizes)
    registers = hardware.bandwidths[0] * peak / hardware.flops
    return replace(
        hardware,
        flops=peak,
        bandwidths=(registers, *rates),
        sources=MappingProxyType(
            {**hardware.sources, "flops": "measured: BLAS", "bandwidths": "measured: copies"}
        ),
    )

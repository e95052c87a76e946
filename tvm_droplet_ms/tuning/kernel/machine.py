# SPDX-License-Identifier: Apache-2.0
"""Records the machine that a directory was tuned on, and counts a kernel's operations."""

import json
import math
import os
from pathlib import Path
from typing import Any

from tvm.ir import IRModule
from tvm.s_tir.analysis import estimate_tir_flops

from ...compat.versions import package_version
from ...host import cpu_name
from ...session.archive import replacing
from ...session.roofline import measure_machine

MACHINE = "machine.json"
"""Name of the file that describes the machine."""

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "tvm-droplet-ms")


def write_machine(
    work_dir: str | os.PathLike[str], threads: int, elsewhere: str | None = None
) -> float:
    """Measure the machine for half a second and write the file; returns its peak in GFLOP/s.

    ``elsewhere``: the name of the servers or the GPU that measured, whose peak is unknown: NaN.
    """
    here = elsewhere is None
    rates = measure_machine(threads) if here else None
    peak = math.nan if rates is None else rates.flops_per_sec / 1e9
    content: dict[str, Any] = {
        "cpu": elsewhere or cpu_name(),
        "threads": threads,
        "peak_gflops": None if math.isnan(peak) else peak,
        # From the largest working set, which no cache holds.
        "memory_gbytes_per_sec": None if rates is None else rates.bytes_per_sec[-1] / 1e9,
        "versions": {package: package_version(package) for package in _PACKAGES},
    }
    with replacing(Path(work_dir) / MACHINE) as partial:
        partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return peak


def flop_of(mod: IRModule) -> float:
    """Floating-point operations of one call; NaN if TVM cannot count them."""
    try:
        return float(estimate_tir_flops(mod))
    except Exception:  # TVM raises many types of errors if it cannot count.
        return math.nan

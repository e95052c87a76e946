# SPDX-License-Identifier: Apache-2.0
"""The file that says which machine a directory was tuned on."""

import json
import math
import os
from importlib import metadata
from pathlib import Path
from typing import Any

from ..host import cpu_name
from ..session.archive import replacing
from ..session.roofline import measure_machine

MACHINE = "machine.json"
"""The file's name."""

_PACKAGES = ("apache-tvm", "apache-tvm-ffi", "tvm-droplet-ms")


def write_machine(
    work_dir: str | os.PathLike[str], threads: int, elsewhere: str | None = None
) -> float:
    """Measure the machine and write the file; it takes half a second.

    ``threads``: the threads of the kernel. ``elsewhere``: the name of what measured, whose peak is
    not known: servers, or a GPU; None for this machine's CPU. Returns the peak rate of float32
    operations, in billions a second; NaN where it cannot be measured.
    """
    peak = _peak_gflops(threads) if elsewhere is None else math.nan
    content: dict[str, Any] = {
        "cpu": elsewhere or cpu_name(),
        "threads": threads,
        "peak_gflops": None if math.isnan(peak) else peak,
        "versions": {package: _version(package) for package in _PACKAGES},
    }
    with replacing(Path(work_dir) / MACHINE) as partial:
        partial.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return peak


def _peak_gflops(threads: int) -> float:
    try:
        return measure_machine(threads).flops_per_sec / 1e9
    except RuntimeError:  # The threads of NumPy's BLAS cannot be limited.
        return math.nan


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # Such as a build of TVM from its source.
        return "not from a package"

# SPDX-License-Identifier: Apache-2.0
"""Examines this machine: system, versions, compiler, threads, prior, noise, disk."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from statistics import quantiles

import numpy as np
from threadpoolctl import threadpool_limits

from ...compat.versions import check_versions, package_version
from .finding import Finding
from .gpu import examine_gpu

FREE_BYTES = 1 << 30
"""Recommended free bytes of a file system, for the libraries of candidates and a database."""

NOISE_RUNS, NOISE_LIMIT = 60, 0.10
"""The number of runs of a fixed computation, and the largest spread of their middle 80% that counts
as quiet."""

COMPILERS = ("g++", "clang++", "c++")
"""Compilers with which TVM can link libraries; one of them is enough."""


def examine_machine() -> Iterator[Finding]:
    """Examine this machine, and yield a finding per subject in the order of importance.

    Subjects that need TVM are skipped if it cannot be imported.
    """
    for look in (_system, _versions, _compiler):
        yield look()
    if not why_no_tvm():
        yield _threads()
        yield _prior()
    yield _noise()
    if not why_no_tvm():
        yield from examine_gpu()
    yield free_space(Path(tempfile.gettempdir()), "temporary directory")


def _system() -> Finding:
    if sys.platform != "linux":
        text = f"{sys.platform}: builder, runner and checks need Linux"
        advice = "use a Linux machine, or TVM's LocalBuilder and LocalRunner with DropletStrategy"
        return Finding("system", "fault", text, advice)
    return Finding("system", "ok", f"Linux, Python {sys.version.split()[0]}")


@cache
def why_no_tvm() -> str:
    """The reason why TVM cannot be imported, in one line; empty if it can."""
    try:
        import tvm  # noqa: F401
    # A broken library or incompatible versions raise errors of many types.
    except Exception as error:
        return " ".join(str(error).split()) or type(error).__name__
    return ""


def _versions() -> Finding:
    packages = ("apache-tvm", "apache-tvm-ffi", "xgboost", "numpy")
    text = ", ".join(f"{name} {package_version(name)}" for name in packages)
    try:
        check_versions()
    except ImportError as error:
        return Finding("versions", "fault", text, str(error))
    if reason := why_no_tvm():
        text += f"; TVM cannot be imported: {reason}"
        advice = "pip install --force-reinstall tvm-droplet-ms"
        return Finding("versions", "fault", text, advice)
    return Finding("versions", "ok", text)


def _compiler() -> Finding:
    found = next((name for name in COMPILERS if shutil.which(name)), None)
    if found is None:
        text = f"none of {', '.join(COMPILERS)} is on the path: no candidate can be linked"
        return Finding("compiler", "fault", text, "install one, such as Debian's package g++")
    return Finding("compiler", "ok", f"{shutil.which(found)}")


def _threads() -> Finding:
    from ...host import tvm_num_threads
    from ...measure import available_cpus

    threads, cpus = tvm_num_threads(), len(available_cpus())
    text = f"TVM runs a kernel on {threads} of {cpus} CPUs"
    if threads > cpus:
        text += ": its threads wait for each other"
        return Finding("threads", "warning", text, f"set TVM_NUM_THREADS={cpus} or less")
    if threads < cpus // 2:
        text += "; tune with threads=N where the kernel gets more"
    return Finding("threads", "ok", text)


def _prior() -> Finding:
    from ...cost_model.instruction_set import instruction_set
    from ...cost_model.pretrained_model import shipped_model
    from ...host import host_target

    target = host_target()
    own = instruction_set(target)
    name = f"{target.attrs['mcpu']}, {own}"
    model = shipped_model(target)
    learned = () if model is None else model.instruction_sets
    if own not in learned:
        known = ", ".join(sorted(learned)) or "no CPU"
        text = f"this CPU is {name}; the shipped cost model has learned from {known}"
        advice = (
            "it may choose worse in the first trials; droplet-ms pretrain learns from work "
            "directories of this machine"
        )
        return Finding("prior", "warning", text, advice)
    return Finding("prior", "ok", f"this CPU is {name}, as the shipped cost model has learned from")


def _noise() -> Finding:
    spread = noise()
    load = os.getloadavg()[0]
    text = f"a fixed computation takes {spread:.0%} more or less, load {load:.1f}"
    if spread > NOISE_LIMIT:
        advice = (
            "end what else computes; winners are timed again in several processes, but a noisy "
            "search finds less"
        )
        return Finding("noise", "warning", text, advice)
    return Finding("noise", "ok", text)


def noise(clock: Callable[[], float] = time.perf_counter) -> float:
    """The spread of a fixed computation's time: the range of the middle 80% over the median."""
    matrix = np.ones((192, 192), dtype=np.float32)
    out = np.empty_like(matrix)
    secs = []
    # Threads that wait for each other would add noise.
    with threadpool_limits(1):
        for _ in range(5):
            np.matmul(matrix, matrix, out=out)
        for _ in range(NOISE_RUNS):
            start = clock()
            for _ in range(8):
                np.matmul(matrix, matrix, out=out)
            secs.append(clock() - start)
    deciles = quantiles(secs, n=10)
    return (deciles[8] - deciles[0]) / deciles[4]


def free_space(directory: Path, subject: str) -> Finding:
    """Check that a directory is writable and has free space."""
    if not os.access(directory, os.W_OK):
        text = f"{directory} cannot be written"
        return Finding(subject, "fault", text, "choose another one, or its rights")
    free = shutil.disk_usage(directory).free
    text = f"{free / (1 << 30):.1f} GiB free in {directory}"
    if free < FREE_BYTES:
        advice = "make room: a full disk fails builds, and leaves a torn line in the database"
        return Finding(subject, "warning", text, advice)
    return Finding(subject, "ok", text)

# SPDX-License-Identifier: Apache-2.0
"""The machine of this process: target, threads, BLAS rate and bandwidth."""

import ctypes
import platform
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
import tvm_ffi

import tvm
from tvm.s_tir.meta_schedule.utils import cpu_count
from tvm.target import Target
from tvm.target.codegen import llvm_get_cpu_features

_COPIES, _COPY_SECS = 3, 0.01
"""The minimum number of copies and the minimum seconds for which a working set is timed."""

CPU_FEATURES = "tvm.codegen.llvm.GetHostCPUFeatures"
"""TVM's global function that asks LLVM for the CPU features of the host."""

_EXTENSIONS = ("avx", "avx2", "avx512f", "fma", "f16c", "xop", "amx", "gfni", "vaes", "vpclmulqdq")
"""Prefixes of LLVM's names for x86 vector extensions. Extensions that others build on come
first."""

_ADDED = (
    *("avxvnni", "avx512vnni", "avx512bf16", "avx512fp16"),
    *("amx-tile", "amx-int8", "amx-bf16"),
)
"""The extensions to add to a target if its CPU name does not imply them."""

_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA = 158, 0x1023, 18
"""The Linux system call that requests the matrix-tile state (``arch_prctl``, x86-64)."""

_PAGE = 4096
"""Bytes in a memory page, a multiple of every vector and cache-line size."""


def host_target(mcpu: str | None = None) -> Target:
    """Detect the target of the host CPU.

    ``mcpu``: LLVM's name of the CPU to generate code for; None for this one. Returns kind ``llvm``,
    with the number of physical cores as ``num-cores``, which MetaSchedule's parallelization rule
    requires. For this CPU, ``mattr`` adds the extensions that its LLVM name does not imply and
    removes the extensions that this machine hides (``offered_by``).
    """
    target = {"kind": "llvm", "num-cores": cpu_count(logical=False)}
    if mcpu is not None:
        return Target({**target, "mcpu": mcpu})
    named = Target({**target, "mcpu": str(Target.from_device("cpu").attrs["mcpu"])})
    return offered_by(host_features(), named)


def parsed_target(target: str | Mapping[str, Any] | Target) -> Target:
    """Parse the target that a user passed. Raises ``ValueError`` if TVM does not know it."""
    if isinstance(target, Target):
        return target
    try:
        return Target(target if isinstance(target, str) else dict(target))
    # TVM raises several types for a target that it does not know.
    except Exception as error:
        example = '{"kind": "llvm", "mcpu": "haswell"}'
        # TVM's message for a plain word does not help: it names code generators or moved options.
        reason = f"expected a kind such as 'llvm', or a description such as '{example}'"
        if not isinstance(target, str) or target.startswith("{"):
            lines = str(error).strip().splitlines() or [type(error).__name__]
            reason = f"{lines[-1].partition('. Target creation')[0]}; expected such as {example}"
        raise ValueError(f"target {target!r} is not known to TVM: {reason}") from error


def check_offered(target: Target, instead: str = "tvm_droplet_ms.host.host_target()") -> None:
    """Check that this machine can run the kernels of a target.

    ``instead``: the expression for this machine's target, quoted in the error message. Raises
    ``ValueError`` if the target has vector extensions that this machine hides.
    """
    if target.kind.name == "llvm" and (missing := missing_extensions(host_features(), target)):
        raise ValueError(
            f"target {target} has {missing[0]}, which this machine does not offer: its kernels "
            f"would end with an illegal instruction; expected {instead}, which is {host_target()}"
        )


def host_features() -> dict[str, bool]:
    """LLVM's names of CPU features, and whether this machine has each; empty if unknown.

    Matrix tiles (AMX) count only if Linux lets this process use them.
    """
    tell = tvm_ffi.get_global_func(CPU_FEATURES, allow_missing=True)
    features = {} if tell is None else {str(name): bool(has) for name, has in tell().items()}
    if features.get("amx-tile", False) and not allows_tiles():
        return {name: has and not name.startswith("amx") for name, has in features.items()}
    return features


def offered_by(features: Mapping[str, bool], target: Target) -> Target:
    """Return a target with the vector extensions that a machine has.

    LLVM names a CPU by its model and assumes that it has all extensions of that model. A virtual
    machine may hide some, usually AVX-512; executing a hidden instruction ends the process. It may
    also report an older model with fewer extensions, such as one without AMX for Sapphire Rapids.

    ``features``: the features of the machine; see ``host_features``.
    """
    changed = target
    if added := [f"+{name}" for name in unnamed_extensions(features, target)]:
        changed = Target({**target.export(), "mattr": [*target.attrs.get("mattr", ()), *added]})
    # Disabling an extension also disables the extensions that build on it: a few names suffice.
    for name in missing_extensions(features, target):
        if name in missing_extensions(features, changed):
            given = changed.attrs.get("mattr", ())
            changed = Target({**changed.export(), "mattr": [*given, f"-{name}"]})
    return changed


def missing_extensions(features: Mapping[str, bool], target: Target) -> list[str]:
    """The vector extensions that a target has and a machine lacks, basic extensions first."""
    absent = [
        str(name)
        for name in llvm_get_cpu_features(target)
        if str(name).startswith(_EXTENSIONS) and not features.get(str(name), True)
    ]
    basic = {name: place for place, name in enumerate(_EXTENSIONS)}
    return sorted(absent, key=lambda name: (basic.get(name, len(basic)), name))


def unnamed_extensions(features: Mapping[str, bool], target: Target) -> list[str]:
    """The extensions in ``_ADDED`` that a machine has and a target lacks.

    They speed up products of 8-bit integers and of half-precision numbers. Other extensions of a
    newer model change little.
    """
    named = {str(name) for name in llvm_get_cpu_features(target)}
    return [name for name in _ADDED if features.get(name, False) and name not in named]


@cache
def allows_tiles() -> bool:
    """True if Linux lets this process use matrix tiles (AMX). It asks once, permanently."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    return int(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_STATE, _TILE_DATA)) == 0


def tiles_note() -> str | None:
    """Explain why matrix tiles are not used; None unless the CPU has them and Linux refuses."""
    path = Path("/proc/cpuinfo")
    has_tiles = path.exists() and " amx_tile " in path.read_text()
    if not has_tiles or allows_tiles():
        return None
    return (
        "the CPU has matrix tiles (AMX), which Linux refuses this process: an alternative signal "
        "stack of a thread is too small, or the system forbids them; kernels are made without"
    )


def cpu_name() -> str:
    """The name of the processor; "unknown" if Linux does not report it."""
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return "unknown"


def tvm_num_threads() -> int:
    """The number of threads that a parallel kernel uses in this process, from TVM's runtime.

    On x86 this is half of the logical CPUs, unless the environment sets ``TVM_NUM_THREADS`` or
    ``OMP_NUM_THREADS`` (``src/runtime/threading_backend.cc``, ``MaxConcurrency``).
    """
    # The call starts TVM's pool, which binds the calling thread to a CPU: use a temporary thread.
    with ThreadPoolExecutor(1) as thread:
        return int(thread.submit(tvm.runtime.num_threads).result())


def blas_gflops(num_threads: int, *, size: int = 1024, repeats: int = 10) -> float:
    """Measure the rate of NumPy's BLAS in float32 matrix multiplication.

    ``num_threads``: number of threads that BLAS may use. ``size``: number of rows and columns of
    both operands. ``repeats``: number of timed multiplications, after one untimed warm-up. Returns
    the rate of the fastest multiplication in GFLOP/s (``2 * size**3`` operations each). Raises
    ``RuntimeError`` if threadpoolctl cannot limit the threads of NumPy's BLAS (such as Apple's
    Accelerate), because an unknown number of threads would then set the rate.
    """
    rng = np.random.default_rng(0)
    lhs, rhs = (rng.standard_normal((size, size), dtype=np.float32) for _ in range(2))
    out = np.empty((size, size), dtype=np.float32)
    with threadpoolctl.threadpool_limits(limits=num_threads, user_api="blas"):
        if not any(pool["user_api"] == "blas" for pool in threadpoolctl.threadpool_info()):
            raise RuntimeError(
                "threadpoolctl knows no BLAS library in this process, so NumPy's BLAS cannot be "
                f"limited to {num_threads} threads. Expected OpenBLAS, MKL, BLIS or FlexiBLAS: "
                "install NumPy from PyPI or conda"
            )
        np.matmul(lhs, rhs, out=out)
        seconds = []
        for _ in range(repeats):
            start = time.perf_counter()
            np.matmul(lhs, rhs, out=out)
            seconds.append(time.perf_counter() - start)
    return 2 * size**3 / min(seconds) / 1e9


def copy_bandwidth(working_set: int) -> float:
    """Measure the bytes per second that a copy on one thread reads and writes.

    Parameters
    ----------
    working_set : int
        The total bytes of source and destination.

    Returns
    -------
    bandwidth : float
        The bandwidth of the fastest copy.

    Notes
    -----
    Both arrays start at a page boundary. NumPy aligns to 16 bytes, and ``memcpy`` within L2 to a
    destination not aligned to 32 bytes took 12 times as long on a Zen 3 core: 6 GB/s instead of 75.
    """
    elements = max(working_set // 8, 1)
    source, destination = _page_aligned(elements), _page_aligned(elements)
    secs: list[float] = []
    while len(secs) < _COPIES or sum(secs) < _COPY_SECS:
        start = time.perf_counter()
        np.copyto(destination, source)
        secs.append(time.perf_counter() - start)
    return (source.nbytes + destination.nbytes) / min(secs)


def _page_aligned(elements: int) -> np.ndarray:
    """Page-aligned float32 ones. Writing them here keeps the slow first touch out of the timing."""
    room = np.ones(elements + _PAGE // 4, dtype=np.float32)
    start = -room.ctypes.data % _PAGE // 4
    return room[start : start + elements]

# SPDX-License-Identifier: Apache-2.0
"""Examines CUDA on this machine: driver, TVM's runtime, device, compiler."""

import ctypes
import importlib.util
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .finding import Finding

DRIVER = "libcuda.so.1"
NVRTC, NVCC = "nvrtc", "nvcc"
MODE = "TVM_CUDA_COMPILE_MODE"
"""The environment variable that selects TVM's CUDA compiler; the default is NVRTC."""

_NODES = ("/dev/nvidiactl", "/dev/dxg")
"""Device files of NVIDIA's kernel driver, on Linux and on the Windows Subsystem for Linux."""


def examine_gpu() -> Iterator[Finding]:
    """Examine CUDA: one finding per subject, or a single finding if there is no sign of a device.

    No finding is a fault, because kernels and models can be tuned for the CPU without CUDA.
    """
    driver = _driver()
    if driver is None:
        yield Finding("GPU", "ok", "no CUDA device")
        return
    yield driver
    from ...session.cuda import device, why_no_runtime

    if reason := why_no_runtime():
        advice = (
            "install a driver for CUDA 13 (580 or later) and libcudart.so.13, their folders on "
            "LD_LIBRARY_PATH"
        )
        yield Finding("CUDA runtime", "warning", f"TVM's is not loaded: {reason}", advice)
        return
    yield Finding("CUDA runtime", "ok", "TVM's is loaded")
    if not device().exist:
        advice = (
            "look at nvidia-smi and CUDA_VISIBLE_DEVICES; a limit of addresses (ulimit -v) hides "
            "it too"
        )
        yield Finding("CUDA device", "warning", "the driver has none for this process", advice)
        return
    yield _device()
    yield _compiler()


def gpu_target(target: Mapping[str, Any]) -> Finding:
    """Compare the CUDA target of a work directory with this machine's device."""
    from tvm.target import Target

    from ...session.cuda import LIMITS, beyond_device, device_name, why_no_device

    asked = f"cuda {target.get('arch')}"
    if reason := why_no_device():
        text = f"it was tuned for {asked}, and no kernel runs on a CUDA device here: {reason}"
        advice = "tune where the device is; its records stay good for it"
        return Finding("target", "warning", text, advice)
    try:
        known = Target({name: target[name] for name in ("kind", "arch", *LIMITS)})
        excess = beyond_device(known)
    # TVM raises several types for a target that it does not know.
    except Exception as error:
        return Finding("target", "fault", f"it is damaged: {error}", "pass another work_dir")
    if excess:
        advice = "tune in another directory; its records stay good for that device"
        return Finding("target", "warning", f"it was tuned for {asked} and has {excess}", advice)
    return Finding("target", "ok", f"{asked}, which this machine's {device_name()} runs")


def _driver() -> Finding | None:
    """The finding on the driver; None if there is no sign of a driver."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError as error:
        if not any(os.path.exists(node) for node in _NODES):
            return None
        text = f"there is a device, but its library is not found: {error}"
        advice = f"put the folder of {DRIVER} on LD_LIBRARY_PATH"
        return Finding("CUDA driver", "warning", text, advice)
    version = ctypes.c_int()
    try:
        status = driver.cuDriverGetVersion(ctypes.byref(version))
    except AttributeError:
        status = 1
    text = f"for CUDA {version.value // 1000}.{version.value % 1000 // 10}"
    return Finding("CUDA driver", "ok", "its version is not known" if status else text)


def _device() -> Finding:
    """The finding on the device, with the limits that ``--target cuda`` reads from it."""
    from ...session.cuda import LIMITS, device_name, device_target

    target = device_target()
    threads, shared = (int(target.attrs[name]) for name in LIMITS)
    text = (
        f"{device_name()}, {target.attrs['arch']}; a block has at most {threads} threads and "
        f"{shared} bytes of shared memory, which --target cuda goes by"
    )
    return Finding("CUDA device", "ok", text)


def _compiler() -> Finding:
    """The finding on the kernel compiler: NVRTC and its headers, or nvcc."""
    mode = os.environ.get(MODE, NVRTC).lower()
    nvcc = shutil.which(NVCC)
    other = f"or set {MODE}={NVCC}" if nvcc and mode != NVCC else "or install CUDA 13's toolkit"
    if mode == NVCC:
        if nvcc:
            return Finding("CUDA compiler", "ok", f"nvcc, {nvcc}, as {MODE} says")
        text, remedy = f"{MODE} asks for nvcc, which is not on the path", f"unset {MODE}, {other}"
    elif not _has_bindings():
        text = "NVRTC needs the package cuda-bindings"
        remedy = f"pip install cuda-bindings, {other}"
    else:
        headers, root = _headers()
        if headers:
            return Finding("CUDA compiler", "ok", f"NVRTC, with the headers in {headers}")
        text = f"NVRTC's headers are not found in {root}"
        remedy = f"set CUDA_PATH to the folder whose include/ has cuda_runtime.h, {other}"
    return Finding("CUDA compiler", "warning", f"{text}: no kernel can be compiled", remedy)


def _has_bindings() -> bool:
    try:
        return importlib.util.find_spec("cuda.bindings.nvrtc") is not None
    except ImportError:
        return False


def _headers() -> tuple[str, str]:
    """The folder with CUDA's headers, empty if not found, and the place where TVM looks for it."""
    from tvm.support.nvcc import find_cuda_path

    try:
        root = str(find_cuda_path())
    except RuntimeError:
        return "", "CUDA_PATH, beside nvcc, or /usr/local/cuda"
    folders = [Path(root) / "include", *sorted(Path(root).glob("targets/*/include"))]
    found = [folder for folder in folders if (folder / "cuda_runtime.h").is_file()]
    return (str(found[0]) if found else ""), root

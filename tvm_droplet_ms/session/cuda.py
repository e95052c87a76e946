# SPDX-License-Identifier: Apache-2.0
"""CUDA on this machine: TVM's runtime for it, its first device, and targets that fit the device."""

import ctypes
import re

import tvm
from tvm.libinfo import package_lib_paths
from tvm.runtime import Device
from tvm.target import Target

from .errors import ModelError

TAGS = ("nvidia/nvidia-a100", "nvidia/nvidia-h100")
"""Tags of TVM targets with all attributes that the GPU rules read, for error messages."""

LIMITS = ("max_threads_per_block", "max_shared_memory_per_block")
"""The attributes that TVM's GPU rules need and ``Target("cuda")`` lacks."""

_RUNTIME = "libtvm_runtime_cuda.so"


def device() -> Device:
    """The device that kernels run on: the first of ``CUDA_VISIBLE_DEVICES``."""
    return tvm.cuda(0)


def why_no_runtime() -> str:
    """The reason why TVM's CUDA runtime is not loaded; empty if it is.

    TVM loads the runtime if it finds the libraries of the driver and of CUDA 13, and reports
    nothing otherwise.
    """
    if tvm.runtime.enabled("cuda"):
        return ""
    paths = [path / _RUNTIME for path in package_lib_paths()]
    found = next((path for path in paths if path.exists()), None)
    if found is None:
        return f"this TVM comes without {_RUNTIME}"
    try:
        ctypes.CDLL(str(found))
    except OSError as error:
        return str(error)
    return "" if tvm.runtime.enabled("cuda") else f"{found} registers nothing"


def why_no_device() -> str:
    """The reason why this process cannot run kernels on a CUDA device; empty if it can."""
    reason = why_no_runtime()
    if reason:
        return f"TVM's CUDA runtime is not loaded: {reason}"
    return "" if device().exist else "the CUDA driver has no device for this process"


def device_target() -> Target:
    """The target of this machine's device, with its limits. Raises ``ModelError`` without one."""
    reason = why_no_device()
    if reason:
        raise ModelError(
            f"target 'cuda' asks this machine's CUDA device, and there is none to run on: {reason}"
        )
    return Target.from_device(device())


def cuda_target(given: Target, *, here: bool) -> Target:
    """Return a CUDA target if kernels can be tuned for it.

    ``here``: whether the kernels run on this machine's device. If they run on servers, this machine
    still compiles them. Raises ``ModelError`` if the target lacks a limit or exceeds the device, or
    if the device or TVM's CUDA runtime is missing.
    """
    missing = [name for name in LIMITS if given.attrs.get(name) is None]
    if missing:
        asking = '"cuda", which asks this machine\'s device, or ' if here else ""
        raise ModelError(
            f"target {given} lacks {' and '.join(missing)}: pass {asking}one that has them, such "
            f"as {' or '.join(TAGS)}"
        )
    reason = why_no_device() if here else why_no_runtime()
    if reason and here:
        raise ModelError(
            f"target {given} needs a CUDA device, and there is none to run on: {reason}"
        )
    if reason:
        raise ModelError(
            f"target {given} needs TVM's CUDA runtime on this machine too, which compiles the "
            f"kernels, and it is not loaded: {reason}"
        )
    excess = beyond_device(given) if here else ""
    if excess:
        raise ModelError(
            f'target {given} has {excess}: pass "cuda", which asks this machine\'s device'
        )
    return given


def beyond_device(target: Target) -> str:
    """A demand of a target that this machine's device does not meet; empty if it meets all."""
    own = Target.from_device(device())
    ours, theirs = (_version(str(one.attrs["arch"])) for one in (own, target))
    # Machine code also runs on later devices of its generation, except code for "sm_90a".
    is_exact = str(target.attrs["arch"]).endswith("a")
    if ours[0] != theirs[0] or ours < theirs or (is_exact and ours != theirs):
        return (
            f"the arch {target.attrs['arch']}, whose code does not run on this machine's device, "
            f"{device_name()}, of {own.attrs['arch']}"
        )
    for name in LIMITS:
        if int(target.attrs[name]) > int(own.attrs[name]):
            return (
                f"{name} = {target.attrs[name]}, where this machine's device, {device_name()}, "
                f"has {own.attrs[name]}"
            )
    return ""


def device_name() -> str:
    """The name of this machine's device, such as "NVIDIA H100 80GB HBM3"."""
    return str(device().device_name)


def _version(arch: str) -> tuple[int, int]:
    """The compute capability of an ``arch``, such as (9, 0) for "sm_90a"."""
    match = re.search(r"(\d+)(\d)", arch)
    return (int(match[1]), int(match[2])) if match else (0, 0)

# SPDX-License-Identifier: Apache-2.0
"""The target of a tuning run."""

from collections.abc import Mapping
from typing import Any

import tvm_ffi

from tvm.target import Target

from ..host import check_offered, host_target, parsed_target
from .cuda import cuda_target, device_target
from .errors import ModelError


def cpu_target(target: str | Mapping[str, Any] | Target, threads: int) -> Target:
    """The CPU target to tune for, with ``num-cores`` set to the number of threads.

    ``target``: "auto" for this machine's CPU, or a target of kind ``llvm``. ``threads``: threads of
    the runtime. Raises ``ModelError`` if TVM does not know the target, or if the target is not a
    CPU, has another architecture than this machine, or has vector extensions that this machine
    lacks.
    """
    return _cpu_target(target, threads, here=True)


def _cpu_target(target: str | Mapping[str, Any] | Target, threads: int, *, here: bool) -> Target:
    given = _known(target)
    if given.kind.name != "llvm":
        raise ModelError(
            f"target {given} is of kind {given.kind.name}: whole models are tuned for CPUs, "
            "expected the kind llvm"
        )
    _refuse_foreign(given)
    if here:
        try:
            check_offered(given, "'auto'")
        except ValueError as error:
            raise ModelError(str(error)) from error
    return Target({**dict(given.export()), "num-cores": threads})


def kernel_target(
    target: str | Mapping[str, Any] | Target, threads: int, *, here: bool = True
) -> Target:
    """The target to tune a single kernel for: a CPU or a CUDA device.

    ``target``: as for ``cpu_target``, or "cuda" for this machine's device, or a target of kind
    ``cuda`` with the limits of its device. ``here``: whether this machine runs the kernels, rather
    than a server. Raises ``ModelError`` if kernels cannot be tuned for the target.
    """
    if here and isinstance(target, str) and target == "cuda":
        return device_target()
    given = _known(target)
    if given.kind.name == "llvm":
        return _cpu_target(given, threads, here=here)
    if given.kind.name != "cuda":
        raise ModelError(
            f"target {given} is of kind {given.kind.name}: kernels are tuned for CPUs and CUDA "
            "devices, expected the kind llvm or cuda"
        )
    if given.host is not None:
        _refuse_foreign(given.host)
    return cuda_target(given, here=here)


def runs_on(target: Target) -> str:
    """TVM's name for the device type that a target's kernels run on: "cpu" or "cuda"."""
    return "cuda" if target.kind.name == "cuda" else "cpu"


def _known(target: str | Mapping[str, Any] | Target) -> Target:
    if isinstance(target, str) and target == "auto":
        target = host_target()
    try:
        return parsed_target(target)
    except ValueError as error:
        raise ModelError(str(error)) from error


def _refuse_foreign(target: Target) -> None:
    """Refuse a target whose kernels this machine cannot link, before each build fails."""
    ours = str(Target.from_device("cpu").attrs["mtriple"])
    triple = str(target.attrs.get("mtriple") or ours)
    architecture = ours.partition("-")[0]
    if triple.partition("-")[0] != architecture:
        raise ModelError(
            f"target {target} is for {triple}, and this machine, which links the kernels, is "
            f"{ours}: expected the same architecture. ms.tune_tir with "
            "tvm_droplet_ms.measure.fleet.FleetRunner and measure.WarmBuilder() has servers of "
            "that architecture link and measure them"
        )
    cpu = target.attrs.get("mcpu")
    is_valid = tvm_ffi.get_global_func("target.llvm_is_valid_cpu", allow_missing=True)
    if cpu and is_valid is not None and not is_valid(str(cpu), triple):
        raise ModelError(
            f"target {target} has the mcpu {str(cpu)!r}, which LLVM does not know for {triple}: "
            f"expected such as {str(Target.from_device('cpu').attrs['mcpu'])!r}, this machine's"
        )

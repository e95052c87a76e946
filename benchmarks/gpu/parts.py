# SPDX-License-Identifier: Apache-2.0
"""Shared code of the GPU run's parts: options, the target, the builder and the runner."""

import argparse
from pathlib import Path
from typing import Any

import psutil


def part_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the output folder, work folder and target. ``doc``: the part's docstring."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--target", default="device")
    return parser


def gpu_target(name: str) -> Any:
    """The target with a name; "device" reads the limits of the card.

    Raises ``RuntimeError`` for "device" if TVM finds no CUDA device.
    """
    import tvm
    from tvm.target import Target

    if name != "device":
        return Target(name)
    if not tvm.runtime.enabled("cuda") or not tvm.cuda(0).exist:
        raise RuntimeError(
            "TVM's CUDA runtime found no device: libcudart.so.13 and libcuda.so.1 are to be on "
            "LD_LIBRARY_PATH, with a driver of CUDA 13"
        )
    return Target.from_device(tvm.cuda(0))


def measuring(target: Any, workers: int | None, *, roomy: bool) -> dict[str, Any]:
    """``fast_measure``, optionally without its limit on the memory of builds.

    A build worker's address space is limited. CUDA's driver reserves more memory than it uses, so a
    build that loads the driver may fail. ``workers``: number of build processes; None for one per
    CPU. ``roomy``: whether builds may take all of the machine's memory.
    """
    from tvm_droplet_ms.measure import WarmBuilder, fast_measure
    from tvm_droplet_ms.measure.build import export_shared_library

    tools = fast_measure(target, max_workers=workers)
    if roomy:
        tools["builder"].close()
        tools["builder"] = WarmBuilder(
            max_workers=workers,
            f_export=export_shared_library,
            target=target,
            paired=True,
            memory_limit_mb=16 * psutil.virtual_memory().total >> 20,
        )
    return tools

# SPDX-License-Identifier: Apache-2.0
"""What the parts of the GPU run share: options, the target, the builder and the runner."""

import argparse
from pathlib import Path
from typing import Any

import psutil


def part_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser with where rows and work go, and the target. ``doc``: the part's docstring."""
    parser = argparse.ArgumentParser(description=(doc or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--target", default="device")
    return parser


def gpu_target(name: str) -> Any:
    """The target of a name; "device" asks the card for its limits.

    Raises ``RuntimeError`` if "device" is asked for and no CUDA device answers.
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
    """``fast_measure``, as it comes or with builds that may take all of the machine's memory.

    A build worker's address space is limited. CUDA's driver reserves more than it uses, so where a
    build comes to load it, that may fail. ``workers``: build processes; None for one for each CPU.
    ``roomy``: whether builds may take all memory.
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

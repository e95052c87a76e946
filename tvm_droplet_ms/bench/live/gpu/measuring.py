# SPDX-License-Identifier: Apache-2.0
"""The builder and the runner of the GPU run."""

from typing import Any

import psutil


def measuring(target: Any, workers: int | None, *, roomy: bool) -> dict[str, Any]:
    """``fast_measure``, as it comes or with builds that may take all of the machine's memory.

    A build worker's address space is limited. CUDA's driver reserves more than it uses, so where a
    build comes to load it, that may fail. ``workers``: build processes; None for one for each CPU.
    ``roomy``: whether builds may take all memory.
    """
    from ....measure import WarmBuilder, fast_measure
    from ....measure.build import export_shared_library

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

# SPDX-License-Identifier: Apache-2.0
"""The search for a faster graph as a Relax pass."""

import logging
import os
from typing import Any

import tvm
from tvm.ir import IRModule

from .optimizer import optimize

logger = logging.getLogger(__name__)


def OptimizeGraph(
    target: Any,
    work_dir: str | os.PathLike[str] | None = None,
    time_budget_s: float = 60.0,
    seed: int = 0,
    **options: Any,
) -> tvm.transform.Pass:
    """Make a pass that replaces a graph by a faster one that is equal; see :func:`optimize`.

    Parameters
    ----------
    target : Target or str
        A CPU.
    work_dir : str | os.PathLike[str] | None
        Where trials and prices are kept. None: prices are estimates, and nothing is run.
    time_budget_s : float
        Seconds.
    seed : int
        The seed of all random choices.
    **options
        Further options of :func:`optimize`.

    Returns
    -------
    ret : tvm.transform.Pass
        The pass. The logger ``tvm_droplet_ms.graph.graph_pass`` is told what was done.
    """

    def run(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        result = optimize(
            mod, target, work_dir=work_dir, time_budget_s=time_budget_s, seed=seed, **options
        )
        logger.info("%s", result)
        return result.mod

    return tvm.transform.module_pass(run, opt_level=0, name="OptimizeGraph")

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
    """Make a pass that replaces a graph with a faster equivalent one; see :func:`optimize`.

    Parameters
    ----------
    target : Target or str
        The target, a CPU.
    work_dir : str | os.PathLike[str] | None
        Directory for trials and prices. None: prices are estimates, and nothing is run.
    time_budget_s : float
        Time budget in seconds.
    seed : int
        The seed of all random choices.
    **options
        Further options of :func:`optimize`.

    Returns
    -------
    ret : tvm.transform.Pass
        The pass. It writes its report to the logger ``tvm_droplet_papers.graph.graph_pass``.
    """

    def run(mod: IRModule, _ctx: tvm.transform.PassContext) -> IRModule:
        result = optimize(
            mod, target, work_dir=work_dir, time_budget_s=time_budget_s, seed=seed, **options
        )
        logger.info("%s", result)
        return result.mod

    return tvm.transform.module_pass(run, opt_level=0, name="OptimizeGraph")

# SPDX-License-Identifier: Apache-2.0
"""A builder and a runner with the recommended settings."""

from typing import Any

from tvm.s_tir.meta_schedule.runner import EvaluatorConfig
from tvm.target import Target

from ..compat.flags import check_flag
from ..compat.lazy_intrinsics import fast_start
from ..host import check_offered, parsed_target
from .build import export_shared_library
from .builder import WarmBuilder
from .pool import available_cpus, require_linux
from .runner import PromptRunner
from .timing import Allocate, Evaluate


def fast_measure(
    target: Target | str | dict[str, Any],
    *,
    max_workers: int | None = None,
    timeout_sec: float = 30.0,
    evaluator_config: EvaluatorConfig | None = None,
    f_alloc_argument: str | Allocate | None = None,
    f_run_evaluator: str | Evaluate | None = None,
    process_wide: bool = True,
) -> dict[str, Any]:
    """Make a builder and a runner for a device of this machine.

    Use it as in ``ms.tune_tir(mod, target, work_dir, 300, **fast_measure(target))``. It also calls
    ``fast_start``, which lasts until ``tvm_droplet_ms.compat.restore()`` or the end of the process.

    Parameters
    ----------
    target : Target | str | dict[str, Any]
        The target to tune for.
    max_workers : int | None
        The number of build processes. Defaults to the number of logical CPUs that builds may use.
    timeout_sec : float
        The time limit of one build and of one measurement, in seconds.
    evaluator_config : EvaluatorConfig | None
        Defaults to one repeat of 20 ms, or five repeats for a candidate near the best of its task.
        TVM's default is one repeat of 100 ms for each candidate.
    f_alloc_argument, f_run_evaluator : str | Callable | None
        Functions that allocate arguments and run the evaluator; see ``PromptRunner``.
    process_wide : bool
        Whether to call ``fast_start``. Libraries pass False: they tune inside ``with
        tvm_droplet_ms.compat.fast_tune_contexts():`` and leave TVM unchanged.

    Returns
    -------
    arguments : dict[str, Any]
        ``builder`` and ``runner``, for ``tune_tir``, ``tune_relax`` and ``tune_tasks``.

    Raises
    ------
    ValueError
        If TVM does not know the target, this machine lacks vector extensions of the target, a
        number is out of range, or a flag is not a bool.
    RuntimeError
        If this is not Linux.
    """
    require_linux("fast_measure")
    target = parsed_target(target)
    check_offered(target)
    if check_flag("process_wide", process_wide):
        fast_start()
    cpus = available_cpus()
    builder = WarmBuilder(
        max_workers=max_workers,
        timeout_sec=timeout_sec,
        f_export=export_shared_library,
        target=target,
        cpus=cpus,
        paired=True,
    )
    runner = PromptRunner(
        timeout_sec=timeout_sec,
        evaluator_config=evaluator_config
        or EvaluatorConfig(number=1, repeat=1, min_repeat_ms=20, enable_cpu_cache_flush=False),
        f_alloc_argument=f_alloc_argument,
        f_run_evaluator=f_run_evaluator,
        cpus=cpus,
    )
    return {"builder": builder, "runner": runner}

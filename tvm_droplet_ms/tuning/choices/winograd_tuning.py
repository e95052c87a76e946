# SPDX-License-Identifier: Apache-2.0
"""Measure both implementations of each convolution, and use the faster ones."""

from math import inf

from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.target import Target

from ...model.kernels.winograd.convolution_kernels import implementation
from ...model.kernels.winograd.winograd import WinogradConvolutions
from ...model.kernels.winograd.winograd_choice import fastest_tiles, promising_tile
from ...session.stop import StopRequest
from ..kernel_tuner import KernelTuner
from ..model_kernels import ModelKernels

SHARE = 0.4
"""The share of the tuning time for comparing direct and Winograd convolutions."""

TRIALS = 24
"""Maximum trials per convolution, on average, before each layer's implementation is chosen."""


def with_winograd(
    tuner: KernelTuner,
    graph: IRModule,
    direct: ModelKernels,
    target: Target,
    stop: StopRequest,
    trials: int | None,
) -> tuple[ModelKernels, str]:
    """Measure both implementations of each layer, and use the faster ones.

    Of the two Winograd tile sizes, only the promising one is tried. If ``trials`` is 0, the times
    in the database are compared. Returns the kernels, which are ``direct`` if Winograd's algorithm
    is not faster for any layer, and a note on the choice, which is empty if there is no choice.
    """
    other = tuner.kernels(WinogradConvolutions(promising_tile)(graph))
    if trials != 0:
        tuner.pick(other, stop)
    # A task whose design space raises would end TVM's loop for all tasks.
    found = [
        (task, implementation(task))
        for kernels in (direct, other)
        for task in kernels.tasks
        if task.task_name not in kernels.picks.unscheduled
    ]
    layers = {what.layer for _, what in found if what is not None and what.tile is not None}
    if not layers:
        return direct, ""
    rivals: dict[object, ExtractedTask] = {}
    for task, what in found:
        if what is not None and what.layer in layers:
            rivals.setdefault((what, str(task.task_name)), task)
    comparing = stop.earlier((1 - SHARE) * stop.left)
    most = TRIALS * len(rivals)
    limit = most if trials is None else min(most, trials)
    for pick in other.picks:
        direct.picks.keep(pick, target)
    if limit:
        tuner.tune(list(rivals.values()), direct, comparing, limit)
    timed = []
    for task in rivals.values():
        what = implementation(task)
        if what is not None:
            timed.append((what, float(task.weight), tuner.best_secs(task)))
    tiles = fastest_tiles(timed)
    if not tiles:
        was_timed = any(secs < inf for *_, secs in timed)
        return direct, (
            "no Winograd convolution was faster"
            if was_timed
            else "no convolution was measured, so that all are computed directly"
        )
    chosen = tuner.kernels(WinogradConvolutions(tiles.get)(graph))
    tuner.pick(chosen, stop)
    return chosen, f"{len(tiles)} of {len(layers)} layers are computed by Winograd's algorithm"

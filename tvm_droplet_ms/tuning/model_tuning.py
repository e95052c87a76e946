# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""The course of a model's tuning: prepare, build, tune, build again, check."""

import logging
import time
from collections.abc import Collection, Sequence
from math import inf
from pathlib import Path

import tvm
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.s_tir.meta_schedule.database import MemoryDatabase
from tvm.target import Target

from ..cost_model.prior import find_prior
from ..database import open_database
from ..measure import fast_measure
from ..model.kernels.registration import register_schedule_rules
from ..model.kernels.winograd import WinogradConvolutions
from ..model.prepare import prepare_graph
from .alternatives import MOST
from .compiled_model import CompiledModel
from .convolution_kernels import implementation
from .diagnosis import NamedPass, first_wrong_pass
from .errors import ModelError
from .frontends.imported import Arrays, ImportedModel
from .inside_model import ROUNDS, faster_inside
from .kernel_table import kernel_rows
from .lowering import build, lower
from .model_kernels import ModelKernels
from .output_check import OutputCheck
from .parts import Parts
from .result import Latency, TuneResult
from .roofline import measure_machine
from .stop import StopRequest
from .strategy import model_strategy
from .torn_database import mend_torn_end
from .tuning_run import tune_tasks_by_clock
from .winograd_choice import TILES, TileChoice, fastest_tiles

logger = logging.getLogger(__name__)

EXECUTABLE = "model.so"
"""The file of the work directory that holds the best complete executable."""

TIMED_RUNS = 15
"""Runs of the final model that its latency is the median of."""

CHOICE_SHARE = 0.15
"""The share of the time that near-best schedules may take to be told apart inside the model."""

WINOGRAD_SHARE = 0.4
"""The share of the tuning in which direct and Winograd convolutions are compared."""

WINOGRAD_TRIALS = 24
"""Trials of each convolution before the faster implementation of a layer is chosen."""

SECS_PER_KERNEL = 0.3
"""The least seconds that a first executable takes for a kernel: a schedule, a prediction, a build.
A budget below that is refused; a slower machine hands over its first executable late."""


def graph_passes() -> list[NamedPass]:
    """The passes of ``prepare_graph`` with their names."""
    return [(str(step.info.name), step) for step in prepare_graph().passes]


class ModelTuning:
    """One run of ``tune``.

    Parameters
    ----------
    imported : ImportedModel
        The model.
    target : Target
        The target.
    threads : int
        Threads of the runtime.
    directory : Path
        The work directory.
    check : OutputCheck
        What the outputs are compared with.
    exact : bool
        Whether Winograd's algorithm is not to be used.
    parts : Parts
        Where the time goes.
    seed : int
        Seed of all random choices.
    """

    def __init__(
        self,
        imported: ImportedModel,
        target: Target,
        threads: int,
        directory: Path,
        check: OutputCheck,
        exact: bool,
        parts: Parts,
        seed: int,
    ) -> None:
        self._imported = imported
        self._target = target
        self._threads = threads
        self._directory = directory
        self._check = check
        self._exact = exact
        self._parts = parts
        self._seed = seed
        self._notes: list[str] = []
        self._winograd = ""
        self._trials = 0
        register_schedule_rules()
        for name in mend_torn_end(directory):
            self._note(
                f"the last line of {name} was torn, as a killed run leaves it, and is cut off"
            )
        self._database = open_database(directory)
        self._rates = measure_machine(threads)

    def run(self, stop: StopRequest, trials: int | None) -> TuneResult:
        """Make a first executable, tune its kernels, make the last one, and describe it.

        Parameters
        ----------
        stop : StopRequest
            When to end.
        trials : int | None
            The most schedules to measure; None for no limit.

        Returns
        -------
        result : TuneResult
            The tuned model.

        Raises
        ------
        ModelError
            If the time is too short for a first executable.
        RuntimeError
            If the outputs differ and no kernel and no pass is the reason.
        """
        graph, kernels, first, build_secs = self._first_executable(stop)
        run_secs = self._latency(first, 3).median
        logger.info("first executable: %.4g ms", 1e3 * run_secs)
        # The last executable has to be built, checked and timed before the deadline.
        ending = 1.5 * build_secs + (TIMED_RUNS + 10) * run_secs
        choosing = MOST * (build_secs + 2 * ROUNDS * run_secs)
        has_time_to_choose = choosing < CHOICE_SHARE * stop.left
        tuning = stop.earlier(ending + has_time_to_choose * choosing)
        chosen, last = kernels, first
        if not self._exact and kernels.tasks and not tuning.is_due:
            chosen = self._with_winograd(graph, kernels, tuning, trials)
        if trials != 0 and kernels.tasks and not tuning.is_due:
            left = None if trials is None else max(0, trials - self._trials)
            if left != 0 and not tuning.is_due:
                self._tune(chosen.tasks, chosen, tuning, left)
        if self._trials or chosen is not kernels:
            chosen, last = self._last_executable(chosen, kernels, first)
            if has_time_to_choose and not stop.is_due:
                last = self._faster_inside(chosen, last)
        return self._describe(chosen, last)

    def _first_executable(
        self, stop: StopRequest
    ) -> tuple[IRModule, ModelKernels, CompiledModel, float]:
        """Prepare and build until the outputs agree, without the passes that change them."""
        skipped: list[str] = []
        while True:
            graph, kernels = self._prepare(stop, skipped)
            start = time.monotonic()
            compiled = self._compile(kernels)
            build_secs = time.monotonic() - start
            agreeing = self._agreeing(kernels, compiled)
            if agreeing is not None:
                self._keep(agreeing)
                return graph, kernels, agreeing, build_secs
            with self._parts("check"):
                name = self._wrong_pass(skipped)
            if name is None:
                raise RuntimeError(
                    f"the outputs differ from {self._check.reference.name} by "
                    f"{self._check.deviation(compiled):.1e} of the largest, and neither a kernel "
                    "nor a graph pass is the reason: please report the model"
                )
            skipped.append(name)
            self._note(f"the graph pass {name} changed the outputs and was left out")

    def _prepare(
        self, stop: StopRequest, skipped: Collection[str]
    ) -> tuple[IRModule, ModelKernels]:
        with self._parts("graph"):
            passes = [step for name, step in graph_passes() if name not in skipped]
            graph = tvm.transform.Sequential(passes)(self._imported.mod)
            kernels = ModelKernels(graph, self._target, self._database)
        calls = sum(int(task.weight) for task in kernels.tasks)
        logger.info("%d kernels, %d calls", len(kernels.tasks), calls)
        least = SECS_PER_KERNEL * len(kernels.tasks)
        if stop.left < least:
            raise ModelError(
                f"the time is too short: a first executable of {len(kernels.tasks)} kernels takes "
                f"at least {least:.0f} s, and {stop.left:.0f} s are left; pass a larger "
                "time_budget_s (--minutes)"
            )
        self._pick(kernels, stop)
        return graph, kernels

    def _pick(self, kernels: ModelKernels, stop: StopRequest) -> None:
        with self._parts("first picks"):
            kernels.pick(self._directory, self._rates, self._seed, lambda: stop.is_due)
        for name, reason in kernels.picks.unscheduled.items():
            self._note(f"{name} has no schedule and stays as it is: {reason}")

    def _compile(self, kernels: ModelKernels) -> CompiledModel:
        with self._parts("compile"):
            return kernels.compile()

    def _agrees(self, compiled: CompiledModel) -> bool:
        with self._parts("check"):
            return self._check.deviation(compiled) <= self._check.tolerance

    def _agreeing(self, kernels: ModelKernels, compiled: CompiledModel) -> CompiledModel | None:
        """The model with the kernels untouched whose schedules give other outputs.

        Returns None where that does not make the outputs agree.
        """
        if self._agrees(compiled):
            return compiled
        with self._parts("check"):
            wrong = kernels.wrong(self._check.tolerance)
        if not wrong:
            return None
        kernels.untouched.update(wrong)
        compiled = self._compile(kernels)
        if not self._agrees(compiled):
            return None
        self._note(f"schedules of {', '.join(wrong)} gave other outputs; these are left untouched")
        return compiled

    def _wrong_pass(self, skipped: Collection[str]) -> str | None:
        def run(mod: IRModule) -> Arrays:
            lowered = lower(mod, self._target, is_reference=True)
            executable = build(lowered, MemoryDatabase(), self._target)
            return CompiledModel(executable)(self._check.inputs[0])

        passes = [(name, step) for name, step in graph_passes() if name not in skipped]
        return first_wrong_pass(
            self._imported.mod, passes, run, self._check.expected[0], self._check.tolerance
        )

    def _tune(
        self,
        tasks: Sequence[ExtractedTask],
        kernels: ModelKernels,
        stop: StopRequest,
        trials: int | None,
    ) -> None:
        """Measure until the clock runs out."""
        left_out = kernels.untouched | set(kernels.picks.unscheduled)
        tasks = [task for task in tasks if task.task_name not in left_out]
        # One object for all tasks: what it learns of one kernel helps with the next.
        prior = find_prior("auto", self._target)
        strategy = model_strategy(tasks, self._database, self._target, kernels.picks, prior=prior)
        measure = fast_measure(self._target, process_wide=False)
        try:
            with self._parts("tuning"):
                run = tune_tasks_by_clock(
                    tasks,
                    work_dir=str(self._directory),
                    database=self._database,
                    strategy=strategy,
                    deadline=stop.deadline,
                    max_trials=trials,
                    rates=self._rates,
                    should_stop=lambda: stop.is_asked,
                    seed=self._seed,
                    **measure,
                )
        finally:
            for part in measure.values():
                part.close()
        self._trials += run.trials
        logger.info("%d trials, ended by: %s", run.trials, run.why_ended)

    def _with_winograd(
        self, graph: IRModule, direct: ModelKernels, stop: StopRequest, trials: int | None
    ) -> ModelKernels:
        """Measure both implementations of each layer, and take the faster ones.

        Without trials, the times that the database has are compared.
        """
        others = []
        for tile in TILES:
            with self._parts("graph"):
                replaced = WinogradConvolutions(TileChoice(tile))(graph)
                others.append(ModelKernels(replaced, self._target, self._database))
            if trials != 0:
                self._pick(others[-1], stop)
        found = [(task, implementation(task)) for k in (direct, *others) for task in k.tasks]
        layers = {what.layer for _, what in found if what is not None and what.tile is not None}
        if not layers:
            return direct
        rivals: dict[object, ExtractedTask] = {}
        for task, what in found:
            if what is not None and what.layer in layers:
                rivals.setdefault((what, str(task.task_name)), task)
        comparing = stop.earlier((1 - WINOGRAD_SHARE) * stop.left)
        most = WINOGRAD_TRIALS * len(rivals)
        limit = most if trials is None else min(most, trials)
        for kernels in (direct, *others):
            for pick in kernels.picks:
                direct.picks.keep(pick, self._target)
            # A task whose design space raises would end TVM's loop for all of them.
            direct.picks.unscheduled.update(kernels.picks.unscheduled)
        if limit:
            self._tune(list(rivals.values()), direct, comparing, limit)
        timed = []
        for task in rivals.values():
            what = implementation(task)
            if what is not None:
                timed.append((what, float(task.weight), self._best_secs(task)))
        tiles = fastest_tiles(timed)
        if not tiles:
            was_timed = any(secs < inf for *_, secs in timed)
            self._note(
                "no Winograd convolution was faster"
                if was_timed
                else "no convolution was measured, so that all are computed directly"
            )
            return direct
        with self._parts("graph"):
            replaced = WinogradConvolutions(TileChoice(tiles))(graph)
            chosen = ModelKernels(replaced, self._target, self._database)
        self._pick(chosen, stop)
        self._winograd = (
            f"{len(tiles)} of {len(layers)} layers are computed by Winograd's algorithm"
        )
        return chosen

    def _best_secs(self, task: ExtractedTask) -> float:
        workload = self._database.commit_workload(task.dispatched[0])
        records = self._database.get_top_k(workload, 1)
        secs = [float(secs) for record in records for secs in record.run_secs]
        return sum(secs) / len(secs) if secs else inf

    def _last_executable(
        self, chosen: ModelKernels, direct: ModelKernels, first: CompiledModel
    ) -> tuple[ModelKernels, CompiledModel]:
        """The model with what was measured, without what gives other outputs."""
        for kernels in dict.fromkeys((chosen, direct)):
            last = self._agreeing(kernels, self._compile(kernels))
            if last is not None:
                if kernels is not direct:
                    self._note(self._winograd)
                self._keep(last)
                return kernels, last
            if kernels is not direct:
                self._note(
                    "the model with Winograd convolutions gave other outputs than the tolerance "
                    f"{self._check.tolerance:.1e} allows: they are computed directly"
                )
            else:
                self._note("the tuned model gave other outputs: the first executable is kept")
        return direct, first

    def _faster_inside(self, kernels: ModelKernels, last: CompiledModel) -> CompiledModel:
        with self._parts("choice inside the model"):
            inputs = self._check.inputs[0]
            faster = faster_inside(kernels, last, self._database, self._target, inputs)
        if faster is None or not self._agrees(faster):
            return last
        self._keep(faster)
        return faster

    def _keep(self, compiled: CompiledModel) -> None:
        with self._parts("compile"):
            compiled.export(self._directory / EXECUTABLE)

    def _describe(self, kernels: ModelKernels, last: CompiledModel) -> TuneResult:
        inputs = self._check.inputs[0]
        with self._parts("check"):
            rows = kernel_rows(
                kernels,
                last.kernel_secs(inputs, 5),
                self._database,
                self._target,
                self._rates,
            )
            deviation = self._check.deviation(last)
            latency = self._latency(last, TIMED_RUNS)
        return TuneResult(
            compiled=last,
            inputs=self._imported.inputs,
            target=self._target,
            threads=self._threads,
            latency=latency,
            deviation=deviation,
            check=self._check,
            kernels=rows,
            trials=self._trials,
            secs_of=dict(self._parts.secs),
            work_dir=self._directory,
            notes=tuple(self._notes),
        )

    def _latency(self, compiled: CompiledModel, runs: int) -> Latency:
        timer = compiled.timer(self._check.inputs[0])
        timer()
        return Latency(tuple(timer() for _ in range(runs)))

    def _note(self, text: str) -> None:
        logger.warning("%s", text)
        self._notes.append(text)

# SPDX-License-Identifier: Apache-2.0
"""Schedules that pack a weight as other shapes of the model do, so that one copy suffices.

The tiles of the loops over its weight determine how a dense layer packs the weight. These loops
have the same extents in all shapes. A kernel of another shape uses the same packed weight if it
takes these tiles from the first shape and keeps its own tiles for the other loops.
"""

import logging
from collections.abc import Iterator
from itertools import product
from math import prod
from pathlib import Path

from tvm_ffi import structural_hash

from tvm import relax
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.target import Target

from ...model.bindings import bits_of, operator_name, values_of
from ...search_strategy import DropletStrategy
from ...search_strategy.explorers.base import SearchContext
from ...search_strategy.explorers.random_sampling import RandomExplorer
from ...search_strategy.explorers.seeded import SeededExplorer
from ...search_strategy.known_schedules import TunedTask
from ...search_strategy.published.candidates import mean, valid_secs
from ...search_strategy.published.decision_kinds import PERFECT_TILE
from ...search_strategy.published.decisions import SpacePoint
from ...search_strategy.published.neighborhood import Point
from ...session.database import open_database
from ...session.errors import last_line
from ...session.stop import StopRequest
from ..experience.strategy import DRAWN
from ..kernel_tuner import KernelTuner
from ..model_kernels import ModelKernels
from ..picks.first_picks import is_tunable
from ..schedules import NEAR, by_workload, is_made_up, timed_records, workloads_of

logger = logging.getLogger(__name__)

CROSSED = 3
"""The maximum number of schedules with known layouts to measure for a kernel, besides its best."""

SHARE = 0.2
"""The share of a shape's time and trials that is reserved for these measurements."""

REPLAYED = 16
"""The maximum number of schedules that are replayed to find them."""

_PACKING = "meta_schedule.layout_rewrite_preproc"
"""The annotation of a block that packs a constant weight (``layout_rewrite.cc``)."""

Layout = tuple[str, int]
"""A packed weight layout: the shapes of the buffers, and a hash of the packing block's body."""

Layouts = frozenset[Layout]

Weight = tuple[str, bytes]
"""A constant: its type and shape, and its first bytes. Layers of equal shape differ in these."""

_FIRST_BYTES = 256


class WeightLayouts:
    """The weight layouts of the shapes that were tuned so far."""

    def __init__(self, directory: Path, target: Target) -> None:
        self._directory = directory
        self._target = target
        self._kernels: ModelKernels | None = None
        self._taken: set[tuple[Layout, Weight]] = set()
        self._leaders: dict[TunedTask, None] = {}
        self._layouts: dict[tuple[int, str], Layouts] = {}
        self._shared: dict[int, TuningRecord] = {}

    def choose(self, kernels: ModelKernels) -> None:
        """Choose for each kernel the fastest near-best schedule with known layouts.

        A kernel whose best schedule packs nothing keeps it. Earlier choices are made anew: a faster
        schedule may have been measured since.
        """
        self._kernels = kernels
        for key, record in self._shared.items():
            if kernels.chosen.get(key) is record:
                del kernels.chosen[key]
        self._shared = {}
        if not self._taken:
            return
        weights = weights_of(kernels)
        for key, records in self._near(kernels).items():
            own = weights.get(key, frozenset())
            shared = next((one for one in records if self._is_taken(self._of(one), own)), None)
            if shared is None or key in kernels.chosen:  # The latter are for correct outputs.
                continue
            if shared is records[0] or self._of(records[0]):
                self._shared[key] = kernels.chosen[key] = shared

    @property
    def share(self) -> float:
        """The share of a shape's time and trials that ``measure`` may take."""
        return SHARE if self._leaders else 0.0

    def measure(
        self, tuner: KernelTuner, kernels: ModelKernels, stop: StopRequest, trials: int | None
    ) -> None:
        """Measure schedules with known layouts for kernels without a near-best one."""
        if not self._taken:
            return
        tasks = self._lacking(kernels)
        most = (1 + CROSSED) * len(tasks)
        most = most if trials is None else min(trials, most)
        if not most or stop.is_due:
            return
        each = max(2, most // len(tasks))  # One of them is the kernel's current schedule.
        schedules, weights = by_workload(kernels.schedules()), weights_of(kernels)

        def seeds(search: SearchContext) -> list[SpacePoint]:
            key = structural_hash(search.history.mod)
            return self._crossed(search, schedules[key], weights.get(key, frozenset()))

        strategy = DropletStrategy(
            explorer=SeededExplorer(seeds, RandomExplorer(pool_size=DRAWN)),
            prior=None,
            draft=None,
            stop=None,
        )
        why = tuner.why_ended
        tuner.tune(tasks, kernels, stop, most, batch=each, each=each, strategy=strategy)
        if why and tuner.why_ended != "interrupt":
            tuner.why_ended = why

    def end_shape(self) -> None:
        """Record the layouts of the shape that was tuned last."""
        assert self._kernels is not None
        weights = weights_of(self._kernels)
        for key, record in by_workload(self._kernels.schedules()).items():
            if layouts := self._of(record):
                self._taken |= set(product(layouts, weights.get(key, frozenset())))
                self._leaders[TunedTask.from_trace(record.trace)] = None

    def _near(self, kernels: ModelKernels) -> dict[int, list[TuningRecord]]:
        """Return the near-best schedules of each kernel, the fastest first.

        The best may be a measured pick, which has no record in the database.
        """
        current = by_workload(kernels.schedules())
        own = {structural_hash(task.dispatched[0]) for task in kernels.tasks}
        near = {}
        for key, pairs in timed_records(open_database(self._directory), self._target).items():
            if key in own:
                best = pairs[0][0]
                if key in current and not is_made_up(current[key]):
                    best = min(best, mean(valid_secs(current[key].run_secs)))
                near[key] = [record for secs, record in pairs if secs <= NEAR * best]
        return near

    def _lacking(self, kernels: ModelKernels) -> list[ExtractedTask]:
        """Return the kernels that pack a weight in a layout that no other shape has."""
        schedules, near = by_workload(kernels.schedules()), self._near(kernels)
        weights = weights_of(kernels)
        found = []
        for task in kernels.tasks:
            key = structural_hash(task.dispatched[0])
            records = [schedules[key]] if key in schedules else []
            packs = bool(records) and bool(self._of(records[0]))
            own = weights.get(key, frozenset())
            taken = any(self._is_taken(self._of(one), own) for one in near.get(key, records))
            if packs and own and is_tunable(task) and not taken:
                found.append(task)
        return found

    def _crossed(
        self, search: SearchContext, record: TuningRecord, weights: frozenset[Weight]
    ) -> list[SpacePoint]:
        """Return a kernel's schedule, and variants of it with the layouts of other shapes."""
        point = search.spaces.find(record.trace)
        if point is None:
            return []
        found = [point]
        for replayed, crossed in enumerate(self._with_tiles_of_leaders(search, point)):
            if len(found) > CROSSED or replayed >= REPLAYED:
                break
            candidate = search.replayer.replay(search.spaces.trace(crossed))
            packed = frozenset() if candidate is None else _packing(candidate.schedule)
            if self._is_taken(packed, weights):
                found.append(crossed)
        return found

    def _with_tiles_of_leaders(
        self, search: SearchContext, point: SpacePoint
    ) -> Iterator[SpacePoint]:
        number, values = point
        sketch = search.spaces.sketches[number]
        kinds = tuple(decision.kind.name for decision in sketch.decisions)
        lengths = [decision.length for decision in sketch.decisions]
        seen = {point}
        for leader in self._leaders:
            if leader.kinds != kinds or [len(value) for value in leader.values] != lengths:
                continue
            pairs = zip(sketch.decisions, leader.values, strict=True)
            crossed: Point = ()
            for decision, theirs in pairs:
                ours = decision.value(values)
                is_tile = decision.kind == PERFECT_TILE and prod(theirs) == prod(ours)
                crossed += theirs if is_tile else ours
            if (number, crossed) not in seen:
                seen.add((number, crossed))
                yield number, crossed

    def _is_taken(self, layouts: Layouts, weights: frozenset[Weight]) -> bool:
        """Return whether other shapes have each of these layouts for one of these weights."""
        return bool(layouts) and all(
            any((layout, weight) in self._taken for weight in weights) for layout in layouts
        )

    def _of(self, record: TuningRecord) -> Layouts:
        key = structural_hash(record.workload.mod), str(record.trace)
        if key not in self._layouts:
            schedule = Schedule(record.workload.mod, debug_mask="none")
            # A record that no longer replays may raise an error of any schedule primitive.
            try:
                record.trace.apply_to_schedule(schedule, remove_postproc=False)
                self._layouts[key] = _packing(schedule)
            except Exception as error:
                logger.info("a record does not replay: %s", last_line(error))
                self._layouts[key] = frozenset()
        return self._layouts[key]


def weights_of(kernels: ModelKernels) -> dict[int, frozenset[Weight]]:
    """Return the constants that each kernel is called with, by the hash of its workload."""
    found: dict[str, set[Weight]] = {}
    for value in values_of(kernels.lowered["main"]):
        if operator_name(value) == "relax.call_tir":
            given = value.args[1]
            fields = given.fields if isinstance(given, relax.Tuple) else [given]
            arrays = [bits_of(argument) for argument in fields]
            found.setdefault(str(value.args[0].name_hint), set()).update(
                (f"{array.dtype} {array.shape}", array.reshape(-1)[:_FIRST_BYTES].tobytes())
                for array in arrays
                if array is not None and array.ndim
            )
    hashes = workloads_of(kernels.lowered, found)
    weights: dict[int, frozenset[Weight]] = {}
    for name, own in found.items():
        if name in hashes:
            weights[hashes[name]] = weights.get(hashes[name], frozenset()) | own
    return weights


def _packing(schedule: Schedule) -> Layouts:
    """Return the layout of each weight that a schedule packs."""
    children = schedule.get_child_blocks(schedule.get_sblock("root"))
    blocks = [schedule.get(block) for block in children]
    return frozenset(_layout(block) for block in blocks if _PACKING in block.annotations)


def _layout(block: SBlock) -> Layout:
    shapes = [list(region.source.shape) for region in (*block.reads, *block.writes)]
    return str(shapes), structural_hash(block.body, map_free_vars=True)

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
"""Variants of a search compared by the truth of their winners. Imports no TVM.

The winner of a run at a checkpoint is the module with the best recorded time until then, as a user
would take it. It is judged by its truth, the median over all its passes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .cached_results import CachedRun
from .comparison import mean_ratio
from .timed_passes import TimedPass, best_truth, is_settled, truth
from .timing_cache import TimingCache
from .timing_file import CacheError

Gains = dict[str, dict[int, float]]
"""Ratios by layer and seed."""


@dataclass(frozen=True)
class Workload:
    """What the cache has of a layer.

    Parameters
    ----------
    passes : Mapping[str, Sequence[TimedPass]]
        The passes of each module that counts.
    faults : Mapping[str, str]
        Why other modules do not count.
    """

    passes: Mapping[str, Sequence[TimedPass]]
    faults: Mapping[str, str]


class Comparison:
    """Runs of variants and the truth of their winners.

    Parameters
    ----------
    runs : Sequence[CachedRun]
        The runs of all variants.
    workloads : Mapping[str, Workload]
        What the cache has, by the key of the layer's module.
    """

    def __init__(self, runs: Sequence[CachedRun], workloads: Mapping[str, Workload]) -> None:
        self._workloads = workloads
        self._best = {key: best_truth(found.passes) for key, found in workloads.items()}
        self.runs = {(run.variant, run.layer, run.seed): run for run in runs}
        self.variants = list(dict.fromkeys(run.variant for run in runs))
        self.layers = list(dict.fromkeys(run.layer for run in runs))

    def runs_of(self, variant: str) -> list[CachedRun]:
        """The runs of a variant."""
        return [run for run in self.runs.values() if run.variant == variant]

    def truth(self, run: CachedRun, checkpoint: int) -> float | None:
        """The truth of a run's winner in seconds; None if it has none or it does not count.

        Raises
        ------
        CacheError
            If the cache does not know the winner.
        """
        winner = run.winner(checkpoint)
        if winner is None or winner.module is None:
            return None
        found = self._workloads[run.workload]
        if winner.module in found.faults:
            return None
        if winner.module not in found.passes:
            raise CacheError(
                f"the cache does not know {winner.module}, which won the run of {run.variant} on "
                f"{run.layer} with seed {run.seed}: give the --cache of that run"
            )
        return truth(found.passes[winner.module])

    def gains(self, baseline: str, variant: str, checkpoint: int) -> Gains:
        """The truth of the baseline's winner over that of the variant's, where both are known."""
        found: Gains = {}
        for run, base in self._pairs(baseline, variant):
            ours, theirs = self.truth(run, checkpoint), self.truth(base, checkpoint)
            if ours is not None and theirs is not None:
                found.setdefault(run.layer, {})[run.seed] = theirs / ours
        return found

    def rooms(self, baseline: str, variant: str, checkpoint: int) -> Gains:
        """For the runs of ``gains``: the truth of the baseline's winner over the best ever seen."""
        found: Gains = {}
        for layer, by_seed in self.gains(baseline, variant, checkpoint).items():
            for seed in by_seed:
                base = self.runs[baseline, layer, seed]
                theirs, best = self.truth(base, checkpoint), self._best[base.workload]
                if theirs is not None and best is not None:
                    found.setdefault(layer, {})[seed] = theirs / best
        return found

    def honesty(self, variant: str, checkpoint: int) -> Gains:
        """The truth of each run's winner over its own record: above 1 the record flatters."""
        found: Gains = {}
        for run in self.runs_of(variant):
            winner, secs = run.winner(checkpoint), self.truth(run, checkpoint)
            if winner is not None and winner.secs is not None and secs is not None:
                found.setdefault(run.layer, {})[run.seed] = secs / winner.secs
        return found

    def unsettled_winners(self, checkpoints: Iterable[int]) -> int:
        """The number of winners whose truth rests on too few passes."""
        return sum(
            not is_settled(self._workloads[workload].passes[module])
            for workload, module in self._winners(checkpoints)
            if module in self._workloads[workload].passes
        )

    def faulty_winners(self, checkpoints: Iterable[int]) -> dict[str, str]:
        """The winners that do not count, and why."""
        return {
            module: self._workloads[workload].faults[module]
            for workload, module in self._winners(checkpoints)
            if module in self._workloads[workload].faults
        }

    def _winners(self, checkpoints: Iterable[int]) -> set[tuple[str, str]]:
        found = set()
        for checkpoint in checkpoints:
            for run in self.runs.values():
                winner = run.winner(checkpoint)
                if winner is not None and winner.module is not None:
                    found.add((run.workload, winner.module))
        return found

    def _pairs(self, baseline: str, variant: str) -> list[tuple[CachedRun, CachedRun]]:
        return [
            (run, self.runs[baseline, run.layer, run.seed])
            for run in self.runs_of(variant)
            if (baseline, run.layer, run.seed) in self.runs
        ]


def read_comparison(runs: Sequence[CachedRun], cache: TimingCache) -> Comparison:
    """The comparison of runs by what the cache knows now."""
    keys = {run.workload for run in runs}
    return Comparison(runs, {key: Workload(cache.passes(key), cache.faults(key)) for key in keys})


def ratios(gains: Gains) -> dict[str, list[float]]:
    """Gains without the names of the seeds."""
    return {layer: list(by_seed.values()) for layer, by_seed in gains.items()}


def gains_of(comparison: Comparison, baseline: str, checkpoint: int) -> dict[str, float]:
    """The mean gain of each variant that has runs in common with the baseline."""
    found = {
        variant: comparison.gains(baseline, variant, checkpoint) for variant in comparison.variants
    }
    return {variant: mean_ratio(ratios(gains)) for variant, gains in found.items() if gains}

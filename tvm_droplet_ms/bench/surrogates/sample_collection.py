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
"""A sample of a design space that is too large to enumerate, measured in rounds."""

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tvm.ir import IRModule
from tvm.target import Target

from ..collection import Collection, Progress
from ..definition import Definition
from ..work_directory import CollectionError, read_lines
from .features import ModuleFeatures
from .regressor import fit, predict
from .sampling import Sampled, Sampler

DRAWN_PER_CHOSEN = 4
"""How many points are drawn near the best for each that a round measures."""

BEST_POINTS = 64
"""Near how many of the best points a round draws."""

AT_RANDOM = 0.25
"""Which share of a round is chosen without regard to what the regressor predicts."""

MOST_DRAWS = 50
"""How many points are drawn at most for each that is wanted: a small space has no more."""


@dataclass(frozen=True)
class SampledModule:
    """A module of the sample.

    Parameters
    ----------
    name : int
        Its structural hash.
    sampled : Sampled
        A point that makes it.
    group : str
        Which part of the sample: "uniform", "near", or the name of a search.
    """

    name: int
    sampled: Sampled
    group: str


class SampleCollection:
    """The sample and its measurements, in a directory; what is done is kept, and resumed.

    Parameters
    ----------
    directory : Path
        Where.
    definition : Definition
        The workload and its design space.
    target : Target
        What to build for.
    seed : int
        Of the sample and its measurements.
    """

    def __init__(
        self, directory: Path, definition: Definition, target: Target, *, seed: int = 0
    ) -> None:
        self.measurements = Collection(directory, definition.mod, target, seed=seed)
        self.sampler = Sampler(definition.context(target, "replay-trace"), seed)
        self.modules: dict[int, SampledModule] = {}
        self._features: dict[int, np.ndarray] = {}
        self._extractor = ModuleFeatures(target)
        self._seed = seed
        self._path = directory / "sample.jsonl"
        for entry in read_lines(self._path):
            sketch, decisions = entry["sampled"]
            self._take(SampledModule(entry["name"], (sketch, tuple(decisions)), entry["group"]))

    def add_uniform(self, count: int, progress: Progress) -> None:
        """Draw points as TVM samples them until there are this many, and measure them once.

        There are fewer where the space has no more.
        """
        for _ in range(MOST_DRAWS * count):
            if len(self._group("uniform")) >= count:
                break
            drawn = self.sampler.uniform()
            if drawn is not None and drawn[1].module not in self.modules:
                self.add(SampledModule(drawn[1].module, drawn[0], "uniform"))
        self._measure_new(progress)

    def add_near(self, count: int, per_round: int, progress: Progress) -> None:
        """Measure points near the best, in rounds, until there are this many, or no more are found.

        A round draws points near the best measured ones and measures those that a regressor of
        what is known so far predicts to be the fastest, of each sketch as many, and some at random:
        where searches go.
        """
        while len(self._group("near")) < count:
            wanted = min(per_round, count - len(self._group("near")))
            found = self._choose_near(wanted)
            if not found:
                return
            for module in found:
                self.add(module)
            self._measure_new(progress)

    def add(self, module: SampledModule) -> None:
        """Add a module to the sample; a known one is left as it is."""
        if module.name in self.modules:
            return
        entry = {"name": module.name, "sampled": module.sampled, "group": module.group}
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        self._take(module)

    def measure(self, passes: Sequence[int], progress: Progress) -> None:
        """Build what is not built, and time everything once in each pass."""
        self.measurements.build(
            {name: self._maker(module) for name, module in self.modules.items()}, progress
        )
        self.measurements.measure(list(self.modules), passes, progress)

    def features(self, names: Sequence[int]) -> np.ndarray:
        """The features of modules of the sample, by structural hash."""
        missing = [name for name in names if name not in self._features]
        rows = self._extractor.of([self._maker(self.modules[name])() for name in missing])
        self._features.update(zip(missing, rows, strict=True))
        return np.stack([self._features[name] for name in names])

    def times(self, names: Sequence[int]) -> list[float]:
        """The median times of modules in seconds; infinity for failures."""
        return [self.measurements.measured(name).time for name in names]

    def _take(self, module: SampledModule) -> None:
        self.modules[module.name] = module

    def _group(self, group: str) -> list[SampledModule]:
        return [module for module in self.modules.values() if module.group == group]

    def _maker(self, module: SampledModule) -> Callable[[], IRModule]:
        return lambda: self.sampler.module(module.sampled)

    def _measure_new(self, progress: Progress) -> None:
        self.measure([0], progress)

    def _choose_near(self, count: int) -> list[SampledModule]:
        names = [
            name
            for name, time in zip(self.modules, self.times(list(self.modules)), strict=True)
            if math.isfinite(time)
        ]
        if not names:
            failures = Counter(self.measurements.failures.values()).most_common()
            listed = ", ".join(f"{number} of {kind}" for kind, number in failures)
            raise CollectionError(
                f"no schedule has a time, so that none is near the best; failed: {listed}; the "
                "messages are in log.jsonl of the work directory"
            )
        times = dict(zip(names, self.times(names), strict=True))
        best = of_each_sketch(names, times, lambda name: self.modules[name].sampled[0])
        best = best[:BEST_POINTS]
        drawn: dict[int, Any] = {}
        for _ in range(MOST_DRAWS * count):
            if len(drawn) >= DRAWN_PER_CHOSEN * count:
                break
            found = self.sampler.near([self.modules[name].sampled for name in best])
            if found is not None and found[1].module not in self.modules:
                drawn[found[1].module] = found
        if not drawn:
            return []
        regressor = fit(self.features(names), [times[name] for name in names], self._seed)
        rows = self._extractor.of([candidate.schedule.mod for _, candidate in drawn.values()])
        self._features.update(zip(drawn, rows, strict=True))
        predicted = dict(zip(drawn, predict(regressor, rows), strict=True))
        in_order = of_each_sketch(list(drawn), predicted, lambda name: drawn[name][0][0])
        guided = in_order[: round(count * (1 - AT_RANDOM))]
        rest = in_order[len(guided) :]
        random.Random(f"{self._seed} {len(self.modules)}").shuffle(rest)
        chosen = guided + rest[: count - len(guided)]
        return [SampledModule(name, drawn[name][0], "near") for name in chosen]


def of_each_sketch(
    names: Sequence[int], times: Mapping[int, float], sketch_of: Callable[[int], int]
) -> list[int]:
    """Order modules: the fastest of each sketch, then the second of each, and so on.

    Each sketch has an optimum of its own, and a search may take any for the best.

    Parameters
    ----------
    names : Sequence[int]
        The modules.
    times : Mapping[int, float]
        Their times.
    sketch_of : Callable[[int], int]
        The sketch that makes a module.
    """
    places: Counter[int] = Counter()
    ranks = {}
    for name in sorted(names, key=times.__getitem__):
        ranks[name] = (places[sketch_of(name)], times[name])
        places[sketch_of(name)] += 1
    return sorted(names, key=ranks.__getitem__)

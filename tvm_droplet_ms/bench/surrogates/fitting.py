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
"""Fits a surrogate to a sample, and tests it where searches go."""

import math
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from tvm_ffi import structural_hash

from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from ...search_strategy import DropletStrategy
from ..baselines.strategy import AskTellStrategy
from ..collection import Progress
from ..definition import Definition
from ..space import SpaceError
from ..table import ReplayTable
from .regressor import fit, predict
from .sample_collection import SampleCollection, SampledModule
from .samples import sampled_space
from .surrogate import CROSS_VALIDATION, SEARCHES_TOGETHER, FitError, Surrogate

FOLDS = 5


class SurrogateFitting:
    """Makes a surrogate of a measured sample.

    Parameters
    ----------
    definition : Definition
        The workload and its design space.
    name : str
        What ``find_definition`` finds it by.
    target : Target
        The target.
    collection : SampleCollection
        The sample.
    """

    def __init__(
        self, definition: Definition, name: str, target: Target, collection: SampleCollection
    ) -> None:
        self._definition = definition
        self._name = name
        self._target = target
        self._collection = collection

    def add_search(
        self, group: str, strategy: ms.SearchStrategy | str, trials: int, seed: int
    ) -> None:
        """Add what a search proposes on the surrogate as it is to the sample.

        A search goes where the regressor promises most, and so where its errors are largest.

        Parameters
        ----------
        group : str
            The group that it adds: one of ``SEARCHES`` is held out, any other is fitted to.
        strategy : ms.SearchStrategy | str
            The strategy.
        trials : int
            How many points it proposes.
        seed : int
            Of the search.

        Raises
        ------
        SpaceError
            If it proposes what is not in the design space.
        """
        if any(module.group == group for module in self._collection.modules.values()):
            return
        random.seed(seed)
        np.random.seed(seed)
        database = ms.database.MemoryDatabase()
        table = ReplayTable(self.surrogate())
        with tempfile.TemporaryDirectory() as work_dir:
            ms.tune_tir(
                self._definition.mod,
                self._target,
                work_dir,
                trials,
                num_trials_per_iter=16,
                database=database,
                space=self._definition.make_space(),
                strategy=strategy,
                num_tuning_cores=1,
                seed=seed,
                **table.measure(),
            )
        for record in database.get_all_tuning_records():
            sampled = self._collection.sampler.point(record.trace)
            if sampled is None:
                raise SpaceError(
                    f"{group} proposed a trace that none of the design space's sketches made, "
                    f"expected one of {len(self._collection.sampler.sketches)}:\n{record.trace}"
                )
            schedule = Schedule(self._definition.mod)
            record.trace.apply_to_schedule(schedule, remove_postproc=False)
            self._collection.add(SampledModule(structural_hash(schedule.mod), sampled, group))

    def measure(self, passes: Sequence[int], progress: Progress) -> None:
        """Build what is new, and time everything in passes."""
        self._collection.measure(passes, progress)

    def surrogate(self) -> Surrogate:
        """Fit a surrogate to what has been measured so far."""
        collection = self._collection
        measured = {
            name: collection.measurements.measured(name)
            for name in collection.modules
            if name in collection.measurements.builds
        }
        names = [name for name, module in measured.items() if math.isfinite(module.time)]
        times = {name: measured[name].time for name in names}
        groups = {name: collection.modules[name].group for name in names}
        features = dict(zip(names, collection.features(names), strict=True))
        fitted = [name for name in names if groups[name] not in SEARCHES]
        regressor = fit(_stack(features, fitted), [times[name] for name in fitted], 0)
        predicted = dict(zip(names, predict(regressor, _stack(features, names)), strict=True))

        def error(held_out: Sequence[int], by: Mapping[int, float]) -> FitError:
            return FitError.of([by[name] for name in held_out], [measured[n] for n in held_out])

        held_out = [name for name in names if groups[name] in SEARCHES]
        errors = {CROSS_VALIDATION: error(fitted, _cross_validate(fitted, features, times))}
        if held_out:
            errors[SEARCHES_TOGETHER] = error(held_out, predicted)
        for group in sorted({groups[name] for name in held_out}):
            alone = [name for name in held_out if groups[name] == group]
            errors[group] = error(alone, predicted)
        return Surrogate(
            sample=sampled_space(self._definition, self._name, self._target, collection, names),
            groups=tuple(groups[name] for name in names),
            regressor=regressor,
            errors=errors,
            predicted=tuple(float(predicted[name]) for name in names),
        )


SEARCHES: dict[str, Callable[[], ms.SearchStrategy | str]] = {
    "evolutionary": lambda: "evolutionary",
    "droplet": DropletStrategy,
    "local-search": lambda: AskTellStrategy("local-search"),
}
"""Searches that go different ways. What they propose is measured: in the first rounds the
regressor learns from it, and in the last it is held out."""

SEARCH_ROUNDS = 8
"""How often a surrogate learns where searches go that it has led astray."""

SEARCH_TRIALS = 48
"""Of a search that is learnt from: many short ones see more of the space than few long ones."""

HELD_OUT_TRIALS = 96
HELD_OUT_SEED = 1000
"""Of a search that is held out."""

UNIFORM_SHARE = 0.36
"""Which share of a sample TVM's own sampling draws; the rest is chosen near the best, or by
searches on what is known so far."""

ROUND = 300


def build_surrogate(
    definition: Definition,
    name: str,
    target: Target,
    directory: Path,
    out: Path,
    *,
    sample: int,
    passes: int,
    progress: Progress,
) -> None:
    """Sample, build and measure a space, fit a surrogate, and write its file.

    Parameters
    ----------
    definition : Definition
        The workload and its design space.
    name : str
        What ``find_definition`` finds it by.
    target : Target
        What to build for.
    directory : Path
        Where what is done is kept.
    out : Path
        The file.
    sample : int
        How many points it is fitted to.
    passes : int
        How often every point is timed.
    progress : Progress
        Told what is done.
    """
    collection = SampleCollection(directory, definition, target)
    uniform = round(UNIFORM_SHARE * sample)
    searched = SEARCH_ROUNDS * len(SEARCHES) * SEARCH_TRIALS
    collection.add_uniform(uniform, progress)
    collection.add_near(max(0, sample - uniform - searched), ROUND, progress)
    fitting = SurrogateFitting(definition, name, target, collection)
    for search_round in range(SEARCH_ROUNDS):
        for search, strategy in SEARCHES.items():
            fitting.add_search(f"{search} {search_round}", strategy(), SEARCH_TRIALS, search_round)
        fitting.measure([0], progress)
    fitting.measure(range(passes), progress)
    for search, strategy in SEARCHES.items():
        fitting.add_search(search, strategy(), HELD_OUT_TRIALS, HELD_OUT_SEED)
    fitting.measure(range(passes), progress)
    fitting.surrogate().save(out)


def _stack(features: Mapping[int, np.ndarray], names: Sequence[int]) -> np.ndarray:
    return np.stack([features[name] for name in names])


def _cross_validate(
    names: Sequence[int], features: Mapping[int, np.ndarray], times: Mapping[int, float]
) -> dict[int, float]:
    """Predict each fold by a regressor that was fitted to the others."""
    shuffled = list(names)
    random.Random(0).shuffle(shuffled)
    predicted: dict[int, float] = {}
    for fold in range(FOLDS):
        held_out = shuffled[fold::FOLDS]
        rest = [name for i, name in enumerate(shuffled) if i % FOLDS != fold]
        regressor = fit(_stack(features, rest), [times[name] for name in rest], 0)
        answers = predict(regressor, _stack(features, held_out)).tolist()
        predicted.update(zip(held_out, answers, strict=True))
    return predicted

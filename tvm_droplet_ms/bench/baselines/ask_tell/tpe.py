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
"""Optuna's tree-structured Parzen estimator."""

from __future__ import annotations

import random
from types import ModuleType
from typing import TYPE_CHECKING

from . import Point, SearchSpace, fresh_point

if TYPE_CHECKING:
    from optuna.trial import Trial

_KNOWN_ASKS = 8
"""Attempts to get an unknown point from Optuna before one is drawn at random."""


def import_optuna() -> ModuleType:
    """Optuna, which is an optional dependency.

    Raises
    ------
    ImportError
        If it is not installed; says how to install it.
    """
    try:
        import optuna
    except ImportError as error:
        raise ImportError(
            "the strategy 'tpe' needs Optuna, which is not installed; "
            "install it with: pip install 'tvm-droplet-ms[bench]'"
        ) from error
    return optuna


class TreeParzenEstimator:
    """Optuna's ``TPESampler`` (Bergstra et al., NeurIPS 2011), each decision modelled by itself.

    A decision whose values have an order is an integer, the others are categories. A tile is an
    integer too: the index of its factorisation, sorted from the innermost factor outwards, so that
    tiles alike in their inner factors are near to each other. As a category of dozens of values
    each would stand alone, and a hundred trials say nothing of most. On made-up costs of three
    tiles of four (128 trials, 14 seeds) integers modelled one by one reached 0.60 of the optimum
    where decisions do not interact and 0.50 where they do; one joint model of all, which is
    Optuna's default, 0.48 and 0.50; categories one by one 0.51 and 0.41.

    Optuna often proposes a point again; such a proposal is withdrawn and another is asked for.

    Parameters
    ----------
    space : SearchSpace
        Space to search.
    generator : random.Random
        Seeds Optuna, and makes all other choices.

    Raises
    ------
    ImportError
        If Optuna is not installed.
    """

    def __init__(self, space: SearchSpace, generator: random.Random) -> None:
        self._optuna = optuna = import_optuna()
        self._space = space
        self._generator = generator
        self._asked: set[Point] = set()
        self._trials: dict[Point, Trial] = {}
        verbosity = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=generator.getrandbits(32), multivariate=False)
        self._study = optuna.create_study(sampler=sampler)
        optuna.logging.set_verbosity(verbosity)

    def ask(self, n: int) -> list[Point]:
        """One point; see `AskTell`."""
        if n < 1:
            return []
        for _ in range(_KNOWN_ASKS):
            point, trial = self._propose()
            if point not in self._asked:
                break
            self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
        else:
            fresh = fresh_point(self._space, self._asked, self._generator)
            if fresh is None:
                return []
            self._study.enqueue_trial(
                {_name(fresh, place): fresh[place] for place in range(len(fresh))}
            )
            point, trial = self._propose()
        self._asked.add(point)
        self._trials[point] = trial
        return [point]

    def tell(self, point: Point, secs: float) -> None:
        """See `AskTell`."""
        self._study.tell(self._trials.pop(point), secs)

    def _propose(self) -> tuple[Point, Trial]:
        trial = self._study.ask()
        point: Point = (self._suggest(trial, (), len(self._space.sizes), False),)
        sketch = point[0]
        for size, ordered in zip(
            self._space.sizes[sketch], self._space.ordered[sketch], strict=True
        ):
            point = (*point, self._suggest(trial, point, size, ordered))
        return point, trial

    def _suggest(self, trial: Trial, prefix: Point, size: int, ordered: bool) -> int:
        """The next index of a point that begins so."""
        name = _name(prefix, len(prefix))
        if size == 1:
            return 0
        if ordered:
            return trial.suggest_int(name, 0, size - 1)
        return trial.suggest_categorical(name, range(size))


def _name(point: Point, place: int) -> str:
    """The parameter of a place: the sketch, or a decision of the point's sketch."""
    return f"sketch {point[0]} decision {place}" if place else "sketch"

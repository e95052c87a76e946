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
"""Each part of DropletStrategy can be switched off, and is then missing."""

from math import log2

import pytest

from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.search_strategy.decisions import PARALLEL
from tvm_droplet_ms.search_strategy.search import WITHOUT
from tvm_droplet_ms.search_strategy.surrogate.gaussian_process import GaussianProcess

from .driving import Drive, drive
from .objectives import Decisions, bowl, rugged, timed
from .strategies import make_droplet, make_informed_droplet
from .watching import follow
from .workloads import make_context, tile_and_annotate


def search(caplog, *without: str, max_trials: int = 120, **options) -> tuple[Drive, list]:
    """What a search measured, and its phases with the trials before each."""
    with follow(caplog) as followed:
        strategy = make_droplet(without=without, **options)
        driven = drive(make_context(strategy), timed(bowl), max_trials=max_trials)
    phases = [(progress.phase, progress.trials) for progress, _ in followed.events("phase")]
    return driven, phases


def steps_between(one: Decisions, other: Decisions) -> int:
    """The factors of two that must go from one position of a tile to another."""
    return sum(
        sum(max(0, round(log2(a / b))) for a, b in zip(*tiles, strict=True))
        for tiles in zip(one, other, strict=True)
    )


def step_lengths(driven: Drive, explored: int) -> set[int]:
    """How far each trial of a descent is from the nearest that was measured before its batch."""
    lengths = set()
    known: list[Decisions] = []
    for batch in driven.batches:
        made = [trial.decisions for trial in batch]
        if len(known) >= explored:
            lengths |= {min(steps_between(new, old) for old in known) for new in made}
        known += made
    return lengths


def test_without_exploration_it_descends_from_the_first_trial(caplog):
    _, with_it = search(caplog)
    _, without = search(caplog, "exploration")
    assert with_it[1] == ("descend", 12)
    assert without[1] == ("descend", 1)


def test_without_descent_it_explores_to_the_end(caplog):
    driven, phases = search(caplog, "descent")
    assert len(driven.trials) == 120
    assert {phase for phase, _ in phases} == {"explore"}


def test_without_the_model_none_is_fitted(caplog, monkeypatch):
    fitted = []
    fit = GaussianProcess.fit
    monkeypatch.setattr(GaussianProcess, "fit", lambda *data: fitted.append(data) or fit(*data))
    driven, _ = search(caplog, "model")
    assert len(driven.trials) == 120
    assert not fitted
    search(caplog)
    assert [len(values) for _, values in fitted[:3]] == [12, 16, 20]


def test_without_joint_steps_and_random_points_every_step_is_adjacent(caplog):
    driven, _ = search(caplog, "joint steps", "random points", max_trials=40)
    assert step_lengths(driven, 12) == {1}


def test_without_random_points_a_step_changes_three_factors_at_most(caplog):
    driven, _ = search(caplog, "random points", max_trials=60)
    lengths = step_lengths(driven, 12)
    assert max(lengths) in (2, 3)
    assert max(step_lengths(search(caplog, "joint steps")[0], 12)) > 3


def test_without_small_batches_they_are_as_large_as_may_be(caplog):
    def sizes(*without: str) -> list[int]:
        driven, _ = search(caplog, *without, explore_trials=7, max_trials=67)
        return [len(batch) for batch in driven.batches][1:]

    assert set(sizes("small batches")) == {6}
    assert sizes()[:3] == [4, 4, 4] and max(sizes()) == 6


def test_without_the_parallel_annotation_a_descent_leaves_it_as_it_is():
    def extents(*without: str) -> set[int]:
        strategy = make_droplet(without=without, explore_trials=6)
        context = make_context(strategy, space=tile_and_annotate)
        driven = drive(context, timed(rugged), max_trials=40)
        return {
            int(inst.inputs[1])
            for trial in driven.trials
            for inst in trial.trace.insts
            if inst.kind.name == "Annotate" and str(inst.attrs[0]) == PARALLEL
        }

    assert len(extents()) > 1
    assert extents("parallel annotation") == {64}


@pytest.mark.parametrize("part", WITHOUT)
def test_every_part_is_kept_by_clone_and_changes_the_search(part: str):
    def modules(strategy) -> list[int]:
        if part == "parallel annotation":
            context = make_context(strategy, space=tile_and_annotate)
        else:
            context = make_context(strategy)
        return drive(context, timed(rugged), max_trials=100).modules

    strategy = make_informed_droplet(without=(part,))
    without = modules(strategy.clone())
    assert without == modules(strategy)
    assert without != modules(make_informed_droplet())


@pytest.mark.parametrize("without", ["descent", ("descents",), (1,)])
def test_unknown_parts_are_refused(without: object):
    with pytest.raises(ValueError, match="without is .* some of exploration, descent"):
        DropletStrategy(without=without)

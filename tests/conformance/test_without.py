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

import pytest

from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.search_strategy.coordinate_descent import CoordinateDescent, Tier
from tvm_droplet_ms.search_strategy.decisions import PARALLEL
from tvm_droplet_ms.search_strategy.neighbourhood import Neighbourhood, OrderedAxis
from tvm_droplet_ms.search_strategy.search import WITHOUT

from .driving import Drive, FixedModel, drive
from .objectives import Noisy, bowl, rugged, timed
from .strategies import make_droplet
from .watching import follow
from .workloads import make_context, tile_and_annotate


def search(caplog, *without: str, max_trials: int = 120, **options) -> tuple[Drive, list]:
    """What a search measured, and its phases with the trials before each."""
    with follow(caplog) as followed:
        strategy = make_droplet(without=without, **options)
        driven = drive(make_context(strategy), timed(bowl), max_trials=max_trials)
    phases = [(progress.phase, progress.trials) for progress, _ in followed.events("phase")]
    return driven, phases


def test_without_exploration_it_descends_from_as_many_trials_as_there_are_starts(caplog):
    _, with_it = search(caplog, num_starts=3)
    _, without = search(caplog, "exploration", num_starts=3)
    assert with_it[1] == ("descend", 12)
    assert without[1] == ("descend", 3)


def test_without_descent_it_explores_to_the_end(caplog):
    driven, phases = search(caplog, "descent")
    assert len(driven.trials) == 120
    assert {phase for phase, _ in phases} == {"explore"}


def test_without_multi_start_it_is_a_search_of_one_start(caplog):
    driven, _ = search(caplog, "multi-start", num_starts=3)
    assert driven.modules == search(caplog, num_starts=1)[0].modules
    assert driven.modules != search(caplog, num_starts=3)[0].modules


def test_without_the_cost_models_order_the_model_is_not_asked_in_a_descent():
    def asked_for(*without: str) -> int:
        asked = []
        model = FixedModel(lambda candidate: asked.append(candidate) or 0.5)
        strategy = make_droplet(without=without, num_starts=1, explore_trials=1)
        # One trial is explored, in a batch of its own, so that all later ones descend.
        drive(make_context(strategy), timed(bowl), max_trials=30, cost_model=model)
        return len(asked)

    assert asked_for("cost-model order") < asked_for()


def test_without_the_significance_test_nothing_is_measured_again():
    def repeated(*without: str) -> set[int]:
        strategy = make_droplet(without=without)
        return drive(make_context(strategy), Noisy(bowl, 0.05), max_trials=80).repeated

    assert repeated()
    assert not repeated("significance test")


def test_without_the_significance_test_any_gain_is_a_step():
    strategy = make_droplet(without=("significance test",), stop_when_converged=True, num_starts=1)
    driven = drive(make_context(strategy), timed(rugged), max_trials=2000)
    assert driven.ended


def test_without_joint_steps_none_are_proposed():
    axes = tuple(OrderedAxis(slot, tuple(range(9))) for slot in range(3))

    def tiers(joint_steps: bool) -> set[Tier]:
        search = CoordinateDescent((0, 0, 0), Neighbourhood(axes), joint_steps=joint_steps)
        first = search.ask()
        best = first[0]
        search.accept(best, first, best.point, Neighbourhood(axes))
        return {proposal.tier for proposal in search.ask()}

    assert Tier.JOINT in tiers(True)
    assert tiers(False) == {Tier.FURTHER, Tier.ADJACENT}


def test_without_the_parallel_annotation_a_descent_leaves_it_as_it_is():
    def extents(*without: str) -> set[int]:
        strategy = make_droplet(without=without, explore_trials=6, num_starts=1)
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
            context, objective = make_context(strategy, space=tile_and_annotate), timed(rugged)
        else:
            noise = 0.05 if part == "significance test" else 0.0
            context, objective = make_context(strategy), Noisy(bowl, noise)
        return drive(context, objective, max_trials=100).modules

    strategy = make_droplet(without=(part,), num_starts=3)
    without = modules(strategy.clone())
    assert without == modules(strategy)
    assert without != modules(make_droplet(num_starts=3))


@pytest.mark.parametrize("without", ["descent", ("descents",), (1,)])
def test_unknown_parts_are_refused(without: object):
    with pytest.raises(ValueError, match="without is .* some of exploration, descent"):
        DropletStrategy(without=without)

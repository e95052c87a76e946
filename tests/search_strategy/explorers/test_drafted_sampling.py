# SPDX-License-Identifier: Apache-2.0
"""A strategy whose random schedules a draft has sifted."""

import logging
import random
import statistics
from types import SimpleNamespace

import numpy as np
import pytest
from conformance.driving import FixedModel, drive
from conformance.objectives import bowl, timed
from conformance.workloads import LLVM, make_context

from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.search_strategy import RandomExplorer
from tvm_droplet_ms.search_strategy import drafting as strategy_draft
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer, TaskHistory
from tvm_droplet_ms.search_strategy.design_spaces import EncodedSpaces
from tvm_droplet_ms.search_strategy.explorers.random_sampling import DraftedSampling


class KnowsTheBowl:
    """Scores a point by what it costs, times a sign; knows nothing of some points."""

    def __init__(self, sign=-1.0, knows=lambda points: np.ones(len(points), dtype=bool)):
        self.sign, self.knows, self.asked = sign, knows, 0
        self.random_share = 0.25

    def begin(self, spaces, replayer):
        self._spaces = spaces
        return self

    def scores(self, sketch, points):
        self.asked += len(points)
        decisions = self._spaces.sketches[sketch].decisions
        costs = np.array(
            [bowl([d.value(tuple(point)) for d in decisions]) for point in points.tolist()]
        )
        return np.where(self.knows(points), self.sign * costs, np.nan)

    def summary(self):
        return "drafted by the bowl"


def costs(draft, seed=0, trials=8, **options):
    strategy = DropletStrategy(prior=None, draft=draft, explore_trials=trials, **options)
    driven = drive(make_context(strategy, seed=seed), timed(bowl), max_trials=trials)
    assert len(driven.trials) == len(set(driven.modules)) == trials
    return [bowl(trial.decisions) for trial in driven.trials]


def test_first_trials_are_the_best_of_thousands_and_some_at_random():
    draft = KnowsTheBowl()
    drafted, without = costs(draft), costs(None)
    assert draft.asked > 500
    assert sum(cost < min(without) for cost in drafted) >= 6
    # A quarter is as TVM draws it.
    assert sorted(drafted)[6] >= min(without)


def test_wrong_draft_leaves_the_random_ones():
    wrong, without = costs(KnowsTheBowl(sign=1.0)), costs(None)
    assert wrong[:2] == without[:2]
    assert statistics.mean(wrong) > statistics.mean(without)


class Constant(KnowsTheBowl):
    def scores(self, sketch, points):
        return np.ones(len(points))


@pytest.mark.parametrize(
    "ignorant",
    [KnowsTheBowl(knows=lambda points: np.zeros(len(points), dtype=bool)), Constant()],
    ids=["nothing", "constant"],
)
def test_draft_that_knows_nothing_changes_nothing(ignorant):
    # Those of the first batch; the next one begins later in the stream of draws.
    assert costs(ignorant)[:4] == costs(None)[:4]


def test_points_that_are_not_valid_are_never_drafted():
    """Unlike unknown ones, they leave the share of the draft to the others."""

    class Refuses(KnowsTheBowl):
        def scores(self, sketch, points):
            scores = super().scores(sketch, points)
            return np.where(points[:, 0] % 2 == 0, scores, -np.inf)

    strategy = DropletStrategy(prior=None, draft=Refuses(), explore_trials=8)
    driven = drive(make_context(strategy), timed(bowl), max_trials=8)
    firsts = [next(iter(trial.decisions))[0] for trial in driven.trials]
    assert sum(first % 2 == 0 for first in firsts) >= 6


def test_the_log_says_what_was_drafted(caplog):
    caplog.set_level(logging.INFO, logger="tvm_droplet_ms")
    costs(KnowsTheBowl())
    assert any("; drafted by the bowl" in record.getMessage() for record in caplog.records)


def test_a_draft_drafts_only_what_it_knows_and_no_more_than_its_share():
    """The draft knows the points whose cost is above the median of random ones: half of them."""
    random = costs(None, trials=64)
    median = statistics.median(random)

    class KnowsTheWorseHalf(KnowsTheBowl):
        def scores(self, sketch, points):
            scores = super().scores(sketch, points)
            return np.where(-scores > median, scores, np.nan)

    found = costs(KnowsTheWorseHalf(), trials=64)
    best_known = [c for c in found if median < c < statistics.quantiles(random, n=8)[4]]
    # Each batch of 8 has 6 that are not random. Half of them are drafted, all near the median.
    assert 16 <= len(best_known) <= 24 + 8
    assert sum(cost <= median for cost in found) >= 20


def test_clone_keeps_the_draft_and_the_same_seed_drafts_the_same():
    strategy = DropletStrategy(prior=None, draft=KnowsTheBowl(), explorer=RandomExplorer())
    context = make_context(strategy.clone())
    driven = drive(context, timed(bowl), max_trials=8)
    assert [bowl(trial.decisions) for trial in driven.trials] == costs(KnowsTheBowl())


@pytest.mark.parametrize("draft", ["symbols", 3, object()])
def test_what_is_no_draft_is_refused(draft):
    expected = r"draft is .*, expected \"auto\", None or an object with `begin`"
    with pytest.raises(ValueError, match=expected):
        DropletStrategy(draft=draft)


def drafts_of(monkeypatch, **options):
    """The drafts that a strategy begins, where the package has one for every target."""
    begun = []

    class Begun(KnowsTheBowl):
        def begin(self, spaces, replayer):
            begun.append(self)
            return super().begin(spaces, replayer)

    find = strategy_draft.tvm_ffi.get_global_func

    def find_but_the_draft(name, **options):
        is_draft = name == "tvm_droplet_ms.find_draft"
        return (lambda _: Begun()) if is_draft else find(name, **options)

    monkeypatch.setattr(strategy_draft.tvm_ffi, "get_global_func", find_but_the_draft)
    driven = drive(
        make_context(DropletStrategy(explorer="random", **options)), timed(bowl), max_trials=4
    )
    assert len(driven.trials) == 4
    return len(begun)


def test_draft_of_the_package_is_the_default(monkeypatch):
    assert drafts_of(monkeypatch, prior=None) == 1
    assert drafts_of(monkeypatch, prior=FixedModel()) == 1
    assert drafts_of(monkeypatch, prior=None, draft=None) == 0


def test_one_valid_point_is_not_lost_among_those_that_are_not():
    """Its score is the only finite one: that tells it from the others."""

    class KnowsOne(KnowsTheBowl):
        random_share = 0.0

        def scores(self, sketch, points):
            self.asked += 1
            return np.where(np.arange(len(points)) == 0, 0.5, -np.inf)

    context = make_context(DropletStrategy(prior=None, draft=None))
    schedules = context.generate_design_space()
    search = SimpleNamespace(
        spaces=EncodedSpaces([schedule.trace for schedule in schedules]),
        replayer=ScreenedReplayer(context.mod, [], random.Random(0)),
        history=TaskHistory(context.mod, LLVM),
        generator=random.Random(0),
    )
    draft = KnowsOne()
    sampling = DraftedSampling(None, search, draft)
    assert len(sampling._drafted([], 8)) == 1
    assert draft.asked

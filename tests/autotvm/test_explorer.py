# SPDX-License-Identifier: Apache-2.0
"""AutoTVM's explorer under DropletStrategy, on real traces and made-up predictions."""

import logging

import numpy as np
import pytest
from conformance.driving import drive
from conformance.objectives import bowl, decisions_of, rugged, timed
from conformance.strategies import make_droplet
from conformance.workloads import make_context

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.autotvm import AnnealingExplorer
from tvm_droplet_ms.autotvm import explorer as explorer_module
from tvm_droplet_ms.autotvm.annealing import submodular_pick


@derived_object
class Model(ms.cost_model.PyCostModel):
    """Predicts the throughput of ``bowl``, or at random; records its queries."""

    def __init__(self, asked=None, is_random=False) -> None:
        super().__init__()
        self.asked = [] if asked is None else asked
        self.generator = np.random.default_rng(0) if is_random else None

    def load(self, path):
        raise NotImplementedError

    def save(self, path):
        raise NotImplementedError

    def update(self, context, candidates, results):
        pass

    def predict(self, context, candidates):
        decisions = [decisions_of(candidate.sch) for candidate in candidates]
        self.asked += decisions
        if self.generator is not None:
            return self.generator.random(len(decisions))
        return np.array([1e-3 / bowl(point) for point in decisions])


def explore(explorer, trials=24, *, seed=1, cost=bowl, **options):
    """Batches of at most eight, all of them exploration."""
    strategy = make_droplet(explorer=explorer, explore_trials=trials, **options.pop("strategy", {}))
    return drive(
        make_context(strategy, seed=seed),
        timed(cost),
        max_trials=trials,
        num_trials_per_iter=8,
        **options,
    )


def test_defaults_are_those_of_autotvm():
    """``SimulatedAnnealingOptimizer`` and ``ModelBasedTuner`` of TVM 0.14."""
    expected = dict(chains=128, steps=500, early_stop=50, plan_size=64, epsilon=0.05)
    assert expected.items() <= vars(AnnealingExplorer()).items()


def test_every_batch_has_a_share_from_the_whole_space():
    """Half of each batch was never visited by a chain, which the model is asked about.

    The chains climb; the random share does not: its mean stays near that of random samples.
    """
    asked = []
    explorer = AnnealingExplorer(chains=8, steps=6, epsilon=0.5, diversity=0.0)
    driven = explore(explorer, 64, strategy={"prior": Model(asked)})
    visited = set(asked)
    assert len(driven.batches) == 8
    for batch in driven.batches:
        assert sum(trial.decisions not in visited for trial in batch) == 4
    later = [trial.decisions for batch in driven.batches[1:] for trial in batch]
    sampled = [bowl(point) for point in later if point not in visited]
    annealed = [bowl(point) for point in later if point in visited]
    alone = [bowl(trial.decisions) for trial in explore("random", 64).trials]
    assert np.mean(sampled) == pytest.approx(np.mean(alone), rel=0.15)
    assert np.mean(annealed) < 0.8 * np.mean(alone)


def test_batch_without_a_random_share_is_the_best_visited():
    asked = []
    explorer = AnnealingExplorer(chains=8, steps=6, epsilon=0.0, diversity=0.0)
    driven = explore(explorer, 8, strategy={"prior": Model(asked)})
    best = sorted(set(asked), key=bowl)[:8]
    assert sorted(trial.decisions for trial in driven.trials) == sorted(best)


def test_chains_go_on_from_batch_to_batch():
    """Of one move a batch, the later ones begin at better states.

    The first batch chooses among the states that the chains begin with, too.
    """

    def mean_costs(seed: int) -> list[float]:
        explorer = AnnealingExplorer(chains=8, steps=1, epsilon=0.0, diversity=0.0)
        driven = explore(explorer, 40, seed=seed, strategy={"prior": Model()})
        return [float(np.mean([bowl(t.decisions) for t in batch])) for batch in driven.batches]

    _, second, *_, last = np.mean([mean_costs(seed) for seed in (1, 2)], axis=0)
    assert last < 0.9 * second


def test_early_stop_ends_the_moves_of_a_batch():
    """A plan of one state is soon found; annealing then ends long before its steps do."""

    def asked_for(early_stop: int) -> int:
        asked = []
        explorer = AnnealingExplorer(
            chains=4, steps=60, early_stop=early_stop, plan_size=1, epsilon=0.0
        )
        explore(explorer, 1, strategy={"prior": Model(asked)})
        return len(asked)

    assert asked_for(2) < 0.5 * asked_for(60)


def test_diversity_covers_more_values():
    def covered(diversity: float) -> int:
        explorer = AnnealingExplorer(chains=8, steps=4, epsilon=0.0, diversity=diversity)
        driven = explore(explorer, 8, strategy={"prior": Model()})
        return len(
            {
                (which, position, factor)
                for trial in driven.trials
                for which, tile in enumerate(trial.decisions)
                for position, factor in enumerate(tile)
            }
        )

    assert covered(1.0) > covered(0.0)


def test_model_that_predicts_at_random_makes_random_batches_and_one_warning(caplog):
    """As TVM's models do until they are trained: the batches are those without a model."""
    explorer = AnnealingExplorer(chains=8, steps=4)
    with caplog.at_level(logging.WARNING, logger="tvm_droplet_ms"):
        untrained = explore(explorer, cost=rugged, cost_model=Model(is_random=True))
    warnings = [record.getMessage() for record in caplog.records if record.name == "tvm_droplet_ms"]
    assert len(warnings) == 1
    assert "predicts at random until it is trained" in warnings[0]
    alone = explore(explorer, cost=rugged, cost_model=None)
    assert len(untrained.batches) == 3
    assert untrained.modules == alone.modules


def test_cost_model_of_the_tuning_stands_in_for_a_prior():
    asked = []
    explorer = AnnealingExplorer(chains=8, steps=4, epsilon=0.0, diversity=0.0)
    driven = explore(explorer, 8, cost_model=Model(asked))
    assert {trial.decisions for trial in driven.trials} <= set(asked)


def test_no_duplicates_and_same_seed_repeats():
    explorer = AnnealingExplorer(chains=8, steps=4)
    first, second = (explore(explorer, strategy={"prior": Model()}) for _ in range(2))
    assert not first.repeated
    assert first.modules == second.modules


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"chains": 0}, "chains is 0, expected an integer of at least 1"),
        ({"steps": 0}, "steps is 0, expected an integer of at least 1"),
        ({"early_stop": 0}, "early_stop is 0, expected an integer of at least 1"),
        ({"plan_size": 0}, "plan_size is 0, expected an integer of at least 1"),
        ({"diversity": -0.1}, "diversity is -0.1, expected at least 0"),
        ({"epsilon": 1.1}, "epsilon is 1.1, expected a share from 0 to 1"),
    ],
)
def test_option_out_of_range_is_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        AnnealingExplorer(**options)


def test_clone_keeps_the_options():
    options = dict(chains=3, steps=4, early_stop=5, plan_size=6, diversity=0.7, epsilon=0.8)
    assert vars(AnnealingExplorer(**options).clone()) == options


def test_a_batch_is_chosen_from_more_than_it_needs(monkeypatch):
    """From as many as it needs all are chosen, whatever their diversity."""
    planned = []

    def watched(scores, covers, count, alpha):
        planned.append((len(scores), count))
        return submodular_pick(scores, covers, count, alpha)

    monkeypatch.setattr(explorer_module, "submodular_pick", watched)
    explorer = AnnealingExplorer(chains=8, steps=6, plan_size=8, epsilon=0.0)
    explore(explorer, 16, strategy={"prior": Model()})
    assert planned and all(size == 2 * count for size, count in planned)

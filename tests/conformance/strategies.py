# SPDX-License-Identifier: Apache-2.0
"""The strategies under the contract, with the clauses that each is known not to keep."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.search_strategy import EvolutionaryExplorer, RandomExplorer

from .driving import FixedModel

SMALL_EVOLUTION = {"population_size": 32, "init_min_unmeasured": 8, "genetic_num_iters": 2}


@dataclass(frozen=True)
class Case:
    """A strategy, and the clauses of the contract that it is known not to keep.

    ``make``: makes one that is quick. ``deviations``: why it does not keep a clause, by the clause.
    """

    name: str
    make: Callable[..., ms.SearchStrategy]
    deviations: Mapping[str, str] = field(default_factory=dict)

    def has_spent(self, measured: int, trials: int) -> bool:
        """True if a strategy measured all trials that it had, or may end before."""
        if "spend its trials" in self.deviations:
            return measured <= trials
        return measured == trials

    def must(self, clause: str) -> None:
        """Skip a test of a clause that the strategy is known not to keep."""
        if clause in self.deviations:
            pytest.skip(f"{self.name} does not {clause}: {self.deviations[clause]}")


class FixedDraft:
    """A draft that is a fixed function of the decisions."""

    random_share = 0.25

    def begin(self, spaces, replayer):
        return self

    def scores(self, sketch, points):
        weights = np.arange(1, points.shape[1] + 1)
        return (points * weights).sum(axis=1) % 1009 / 1009

    def summary(self):
        return "all of it"


def make_droplet(**options) -> ms.SearchStrategy:
    """DropletStrategy without a prior and a draft, which spends its trials."""
    quick = {"explore_trials": 12, "prior": None, "draft": None, "stop": None, "explorer": "random"}
    if options.get("explorer") == "evolutionary":
        options["explorer"] = EvolutionaryExplorer(**SMALL_EVOLUTION)
    return DropletStrategy(**quick | options)


def make_informed_droplet(**options) -> ms.SearchStrategy:
    """DropletStrategy with a prior and a draft that are fixed functions of the candidate."""
    informed = {
        "prior": FixedModel(),
        "draft": FixedDraft(),
        "explorer": RandomExplorer(pool_size=48),
    }
    return make_droplet(**informed | options)


def make_published_droplet(**options) -> ms.SearchStrategy:
    """The published search: evolution explores, and one decision after the other descends."""
    quick = {"explore_trials": 12, "descent_batch_size": 6}
    return DropletStrategy.published(**quick | options, evolution=make_evolution())


def make_evolution(**options) -> ms.SearchStrategy:
    return ms.search_strategy.EvolutionarySearch(**SMALL_EVOLUTION | options)


DROPLET = Case(
    "DropletStrategy",
    make_droplet,
    {"mutate": "it steps by itself; the explorer that mutates has a test of its own"},
)
PUBLISHED = Case(
    "DropletStrategy.published",
    make_published_droplet,
    {"spend its trials": "it ends at a local optimum, as the paper's does"},
)
INFORMED = Case("DropletStrategy, informed", make_informed_droplet, DROPLET.deviations)
EVOLUTION = Case(
    "EvolutionarySearch",
    make_evolution,
    {
        "resume": "it knows what it proposed since its pre_tuning, and measures the database's "
        "records again",
        "ignore other targets": "TVM's database does not compare targets",
        "refuse to generate twice": "it proposes another batch",
        "refuse wrong results": "it counts the results that it is given",
    },
)
REPLAY = Case(
    "ReplayTrace",
    ms.search_strategy.ReplayTrace,
    {
        "measure once": "it draws every candidate anew and keeps no account of them",
        "end an exhausted space": "it draws until the trials are spent",
        "resume": "it reads no database",
        "mutate": "it only samples",
        "refuse to generate twice": "it draws another batch",
        "refuse wrong results": "it counts batches only",
    },
)
STRATEGIES = [DROPLET, INFORMED, PUBLISHED, EVOLUTION, REPLAY]

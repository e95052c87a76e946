# SPDX-License-Identifier: Apache-2.0
"""NumPy's global generator is the user's: no search draws from it, and none seeds it."""

import numpy as np
import pytest

from tvm_droplet_ms.search_strategy import EvolutionaryExplorer, RandomExplorer

from .driving import FixedModel, drive
from .objectives import rugged, timed
from .strategies import SMALL_EVOLUTION, make_droplet
from .workloads import make_context

EXPLORERS = {
    "random": RandomExplorer(),
    "evolutionary": EvolutionaryExplorer(**SMALL_EVOLUTION),
}


@pytest.mark.parametrize("prior", [None, FixedModel()], ids=["no prior", "prior"])
@pytest.mark.parametrize("explorer", EXPLORERS)
def test_search_leaves_the_global_generator_alone(explorer, prior):
    np.random.seed(7)
    before = np.random.get_state()
    strategy = make_droplet(explorer=EXPLORERS[explorer], prior=prior)
    driven = drive(make_context(strategy), timed(rugged), max_trials=20, cost_model=None)
    after = np.random.get_state()
    assert len(driven.trials) == 20
    assert before[0] == after[0]
    np.testing.assert_array_equal(before[1], after[1])
    assert before[2:] == after[2:]


@pytest.mark.parametrize("explorer", EXPLORERS)
def test_search_does_not_depend_on_the_global_generator(explorer):
    modules = []
    for seed in (1, 2):
        np.random.seed(seed)
        strategy = make_droplet(explorer=EXPLORERS[explorer])
        driven = drive(make_context(strategy), timed(rugged), max_trials=16, cost_model=None)
        modules.append(driven.modules)
    assert modules[0] == modules[1]

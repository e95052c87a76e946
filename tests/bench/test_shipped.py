# SPDX-License-Identifier: Apache-2.0
"""The spaces that come with the package: whole, closed, and made by this TVM."""

from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from replaying import tune

from tvm.s_tir import meta_schedule as ms
from tvm.target import Target
from tvm_droplet_ms.bench import space as measured
from tvm_droplet_ms.bench.compare.replay import replay
from tvm_droplet_ms.bench.compare.results import CompareError
from tvm_droplet_ms.bench.compare.runs import Rules, plan
from tvm_droplet_ms.bench.definition import definition_of, find_definition
from tvm_droplet_ms.bench.design_space import DesignSpace, check_modules
from tvm_droplet_ms.bench.space import Space, shipped_samples, shipped_spaces
from tvm_droplet_ms.bench.table import ReplayTable
from tvm_droplet_ms.measure import fast_start

SPACES = list(shipped_spaces())
WHOLE = [name for name in shipped_samples() if name.startswith("whole_")]
FILES = shipped_spaces() | {name: shipped_samples()[name] for name in WHOLE}
LOADED = {name: Space.load(path) for name, path in FILES.items()}

SEEDS = range(1, 21)


@cache
def small_evolution() -> ms.search_strategy.EvolutionarySearch:
    """Mutates as TVM's default does, and a smaller population."""
    return ms.search_strategy.EvolutionarySearch(
        population_size=32, init_min_unmeasured=8, genetic_num_iters=2
    )


def evolve(space: Space, strategy: ms.SearchStrategy, trials: int, seed: int) -> ReplayTable:
    """Tune on a space, which fails where a module is missing."""
    fast_start()
    definition, target = find_definition(space.definition), Target(dict(space.target))
    table = ReplayTable(space)
    options = {"definition": definition, "target": target, "num_trials_per_iter": 16}
    tune(table, strategy, trials, seed=seed, **options)
    return table


@pytest.mark.parametrize("name", SPACES)
def test_space_is_complete(name: str):
    space = LOADED[name]
    assert space.name == space.definition == name
    assert space.closed
    assert 500 <= len(space.modules) <= 10_000
    points = {(point.sketch, point.decisions) for point in space.points}
    assert len(points) == len(space.points)
    assert len(space.index) == len(space.modules)
    assert {point.module for point in space.points} - {None} == set(range(len(space.modules)))
    for module in space.modules:
        assert module.failure or len(module.secs) >= 5
    assert FILES[name].stat().st_size < 300_000


@pytest.mark.parametrize("name", LOADED)
def test_this_tvm_makes_the_measured_modules(name: str):
    fast_start()
    space = LOADED[name]
    check_modules(space)
    context = definition_of(space).context(Target(dict(space.target)), "replay-trace")
    assert DesignSpace(context).layouts() == space.sketches


@pytest.mark.parametrize(
    "name",
    [
        # A product and a norm; the others take minutes together.
        name if name in ("dense", "layer_norm") else pytest.param(name, marks=pytest.mark.slow)
        for name in SPACES
    ],
)
def test_evolution_stays_in_the_space(name: str):
    space, reached = LOADED[name], set()
    for seed in SEEDS[:10]:
        table = evolve(space, small_evolution(), 32, seed)
        reached |= {trial.module for trial in table.trials}
    assert len(reached) > 100


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACES)
def test_evolution_as_tvm_has_it_stays_in_the_space(name: str):
    for seed in SEEDS:
        evolve(LOADED[name], ms.search_strategy.EvolutionarySearch(), 64, seed)


@pytest.mark.parametrize("name", WHOLE)
def test_sample_of_whole_space_keeps_where_its_points_come_from(name: str):
    space = LOADED[name]
    assert space.name == space.definition == name
    assert not space.closed
    assert len(space.origins) == len(space.modules) == len(space.index) >= 2000
    origins = Counter(origin.split()[0] for origin in space.origins)
    assert set(origins) == {"random", "near", "evolutionary", "droplet", "local-search"}
    assert min(origins.values()) >= 280
    times = np.array(space.times)
    at_random = times[[origin == "random" for origin in space.origins]]
    assert times.min() < at_random.min(), "searches found faster schedules than random draws"


@pytest.mark.parametrize("name", WHOLE)
def test_sample_cannot_be_searched(name: str, tmp_path: Path):
    with pytest.raises(CompareError, match=f"{name}.*is a sample"):
        plan([FILES[name]], ["replay-trace"], tmp_path, Rules(1, 1))


def test_package_is_small():
    """Compressed data, three priors among them; a quarter of the wheel is left for code."""
    assert len(SPACES) == 15
    package = Path(measured.__file__).parents[1]
    data = [path for path in package.rglob("*") if path.suffix in (".gz", ".json", ".model")]
    assert sum(path.stat().st_size for path in data) < 2_700_000


@pytest.mark.parametrize("name", ["conv2d_nchw", "conv2d_bn_relu"])
def test_a_search_stays_within_a_space_that_has_vectors_of_odd_lengths(name, tmp_path):
    """A live search would split them, into modules that were never measured."""
    (job,) = plan([FILES[name]], ["droplet without prior"], tmp_path, Rules(48, 1))
    assert len(replay(FILES[name], job.settings).trials) == 48

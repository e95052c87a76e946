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
"""The ask/tell algorithms on made-up spaces, against brute force; no TVM."""

import math
import random
import sys
import zlib
from itertools import pairwise, product
from statistics import mean

import pytest

from tvm_droplet_ms.bench.baselines.ask_tell import unseen_point
from tvm_droplet_ms.bench.baselines.ask_tell.local_search import LocalSearch
from tvm_droplet_ms.bench.baselines.ask_tell.random_search import RandomSearch
from tvm_droplet_ms.bench.baselines.ask_tell.tpe import TreeParzenEstimator


class Grid:
    """Sketches of ordered decisions; a neighbour differs by one value."""

    def __init__(self, *sizes):
        self.sizes = sizes
        self.ordered = [tuple(place % 2 == 0 for place in range(len(size))) for size in sizes]

    @property
    def points(self):
        return [
            (sketch, *values)
            for sketch, size in enumerate(self.sizes)
            for values in product(*map(range, size))
        ]

    def sample(self, generator):
        sketch = generator.randrange(len(self.sizes))
        return (sketch, *map(generator.randrange, self.sizes[sketch]))

    def neighbours(self, point):
        return [
            (*point[:place], point[place] + step, *point[place + 1 :])
            for place, size in enumerate(self.sizes[point[0]], start=1)
            for step in (-1, 1)
            if 0 <= point[place] + step < size
        ]


class Run:
    """The points that an algorithm proposed within a budget, and their times."""

    def __init__(self, name, space, cost, budget, seed=1):
        generator = random.Random(seed)
        self.asked, self.secs = [], []
        self.algorithm = {
            "random": lambda: RandomSearch(space, generator),
            "tpe": lambda: TreeParzenEstimator(space, generator),
            "local-search": lambda: LocalSearch(space, generator),
        }[name]()
        while len(self.asked) < budget:
            points = self.algorithm.ask(budget - len(self.asked))
            if not points:
                break
            for point in points:
                self.asked.append(point)
                self.secs.append(cost(point))
                self.algorithm.tell(point, self.secs[-1])

    @property
    def best(self):
        return min(self.secs)


def separable(point):
    return 1.0 + sum((value - 2 - place % 3) ** 2 for place, value in enumerate(point))


def coupled(point):
    return 1.0 + sum((a - b - 1) ** 2 for a, b in pairwise(point))


def rugged(point):
    return 1.0 + zlib.crc32(repr(point).encode()) / 2**32


def mostly_failing(point):
    return rugged(point) if rugged(point) < 1.2 else math.inf


def all_failing(_):
    return math.inf


ALGORITHMS = ["random", "tpe", "local-search"]
SMALL = Grid((4, 5, 3), (), (7, 1, 4))


@pytest.fixture(params=ALGORITHMS)
def name(request):
    if request.param == "tpe":
        pytest.importorskip("optuna")
    return request.param


@pytest.mark.parametrize("cost", [separable, coupled, rugged, mostly_failing, all_failing])
def test_exhausts_small_space(name, cost):
    """Every point once, the optimum of brute force among them, and then no more."""
    run = Run(name, SMALL, cost, budget=1000)
    assert sorted(run.asked) == sorted(SMALL.points)
    assert run.best == min(map(cost, SMALL.points))
    assert run.algorithm.ask(5) == []


@pytest.mark.parametrize("sizes", [[()], [(1,)], [(1, 1), (1,)]])
def test_space_without_decisions(name, sizes):
    assert sorted(Run(name, Grid(*sizes), separable, 10).asked) == Grid(*sizes).points


def test_ask_for_zero_points(name):
    run = Run(name, SMALL, separable, budget=3)
    assert run.algorithm.ask(0) == []


def test_same_seed_repeats(name):
    first, second = (Run(name, SMALL, rugged, budget=40, seed=5) for _ in range(2))
    assert first.asked == second.asked
    assert first.asked != Run(name, SMALL, rugged, budget=40, seed=6).asked


def test_global_generator_is_not_used(name):
    """Python's own generator is not drawn from."""
    random.seed(1)
    first = Run(name, SMALL, rugged, budget=40)
    random.seed(2)
    state = random.getstate()
    assert Run(name, SMALL, rugged, budget=40).asked == first.asked
    assert random.getstate() == state


LARGE = Grid((9, 9, 9, 9, 9))
CENTRE = (0, 2, 6, 4, 1, 7)


def smooth(point):
    """A bowl around a centre, where the time is 1."""
    return 1.0 + sum((a - b) ** 2 for a, b in zip(point, CENTRE))


def test_local_search_is_better_than_random_on_a_smooth_cost():
    """Distance of the best from the optimum, mean of 20 seeds."""

    def above(name):
        return mean(Run(name, LARGE, smooth, 300, seed).best - 1.0 for seed in range(20))

    assert above("random") > 2.0
    assert above("local-search") < 0.1 * above("random")


def test_tpe_proposes_faster_points_than_random():
    """Its points are nearer to the centre than by chance."""
    pytest.importorskip("optuna")
    learned = mean(mean(map(smooth, Run("tpe", LARGE, smooth, 60, seed).asked)) for seed in (1, 2))
    assert learned < 0.9 * mean(map(smooth, LARGE.points))


def test_random_search_fills_a_batch():
    algorithm = RandomSearch(SMALL, random.Random(1))
    assert len(set(algorithm.ask(20))) == 20


def _changes(point, other):
    return sum(a != b for a, b in zip(point, other, strict=True))


def test_local_search_climbs_by_first_improvement():
    """Until a local optimum is known each point is a neighbour of the best so far."""
    run = Run("local-search", LARGE, smooth, budget=400)
    best = run.asked[0]
    for number, point in enumerate(run.asked[1:], start=1):
        assert point in LARGE.neighbours(best)
        if smooth(point) < smooth(best):
            best = point
        if all(neighbour in run.asked[: number + 1] for neighbour in LARGE.neighbours(best)):
            break
    assert best == CENTRE


def test_local_search_perturbs_the_optimum():
    """After the optimum and its neighbours comes a point that differs in three decisions."""
    search, times = LocalSearch(LARGE, random.Random(1), strength=0.6), {}
    while not {CENTRE, *LARGE.neighbours(CENTRE)} <= times.keys():
        (point,) = search.ask(1)
        times[point] = smooth(point)
        search.tell(point, times[point])
    (perturbed,) = search.ask(1)
    assert _changes(perturbed, CENTRE) == 3


def test_local_search_starts_afresh_in_every_sketch():
    run = Run("local-search", Grid((3, 3), (3, 3), (3, 3)), separable, budget=27)
    assert {point[0] for point in run.asked} == {0, 1, 2}


def test_tpe_without_optuna(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"pip install 'tvm-droplet-ms\[bench\]'"):
        TreeParzenEstimator(SMALL, random.Random(1))


def test_unseen_points_are_proposed_until_space_is_exhausted():
    generator, seen = random.Random(1), set()
    while (point := unseen_point(SMALL.sizes, seen, generator)) is not None:
        assert point not in seen
        seen.add(point)
    assert sorted(seen) == sorted(SMALL.points)

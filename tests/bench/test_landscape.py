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
"""Local minima and where descents end, against hand-worked landscapes and brute force."""

import math
from dataclasses import replace
from itertools import combinations

import pytest

from tvm_droplet_ms.bench.landscape import best_of, descents, landscape, local_minima, module_graph
from tvm_droplet_ms.bench.show import format_landscapes
from tvm_droplet_ms.bench.sketch_layout import DecisionLayout, SketchLayout
from tvm_droplet_ms.bench.space import (
    MeasuredModule,
    MeasuredPoint,
    Space,
)

TIMES = [4.0, 2.0, 3.0, 3.5, 1.0, math.inf, 0.98]
"""A line: minima at 1 and 4, a failure, and another minimum behind it."""

LINE = [[1], [0, 2], [1, 3], [2, 4], [3, 5], [4, 6], [5]]


def line_space() -> Space:
    """The line as an ordered category of seven candidates."""
    layout = DecisionLayout("SampleCategorical", 0, 1, candidates=tuple(range(7)))
    modules = tuple(
        MeasuredModule(i, (), 0.0, 0.0, "runtime")
        if math.isinf(time)
        else MeasuredModule(i, (time, time, time), 0.0, 0.0)
        for i, time in enumerate(TIMES)
    )
    points = tuple(MeasuredPoint(0, (i,), i) for i in range(7))
    sketches = (SketchLayout((layout,)),)
    return Space("line", "", "", {}, {}, {}, "", sketches, points, modules)


def test_neighbours_of_a_module_are_those_of_its_points():
    assert module_graph(line_space()) == LINE


def test_aliases_share_their_neighbours():
    space = line_space()
    points = [
        replace(point, module=0 if point.module == 6 else point.module) for point in space.points
    ]
    graph = module_graph(replace(space, points=tuple(points)))
    assert graph[0] == [1, 5]
    assert graph[5] == [0, 4]


def test_local_minima():
    assert local_minima(TIMES, LINE) == [1, 4, 6]


def test_small_gain_does_not_count_beyond_noise():
    assert local_minima([1.0, 0.99, 0.5], [[1], [0, 2], [1]], 0.0) == [2]
    assert local_minima([1.0, 0.99, 0.5], [[1], [0, 2], [1]], 0.1) == [0, 2]


def test_descent_ends_match_brute_force_walk():
    assert descents(TIMES, LINE) == [1, 1, 1, 4, 4, 6, 6]


def test_descents_follow_the_steepest_way():
    times = [3.0, 2.0, 1.5, 2.5]
    assert descents(times, [[1, 3, 2], [0], [0], [0]])[0] == 2


@pytest.mark.parametrize("draws", [1, 2, 3, 5, 7])
def test_best_of_averages_all_draws(draws: int):
    good = [True, False, True, True, False, False, True]
    samples = list(combinations(range(7), draws))
    share = sum(good[min(sample)] for sample in samples) / len(samples)
    assert best_of(good, draws) == pytest.approx(share)


def test_best_of_more_draws_than_modules_is_optimum():
    assert best_of([True, False], 64) == pytest.approx(1.0)
    assert best_of([False, True], 64) == pytest.approx(0.0)


def test_landscape_of_a_line():
    found = landscape(line_space())
    assert (found.points, found.modules, found.failed) == (7, 7, 1)
    assert found.optimum == 0.98
    assert found.minima == pytest.approx((1.0, 1 / 0.98, 2 / 0.98))
    assert found.noise == found.unsteady == 0.0
    # From 3, 4, 6 and the failure's neighbour; the failure itself cannot be a start.
    assert found.descents_to_5_percent == pytest.approx(4 / 6, abs=1 / 6)


def test_module_whose_passes_differ_by_more_than_twice_is_unsteady():
    space = line_space()
    first, second, *rest = space.modules
    first = replace(first, secs=(1.0, 2.1, 2.0))
    second = replace(second, secs=(1.0, 2.0, 1.5))
    found = landscape(replace(space, modules=(first, second, *rest)))
    assert found.unsteady == pytest.approx(1 / 6)


def test_table_names_each_space():
    text = format_landscapes([(line_space(), landscape(line_space()))])
    assert "| line  |" in text
    assert "14.3%" in text

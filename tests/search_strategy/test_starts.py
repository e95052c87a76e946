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
"""Where descents start: the best, and not near-copies."""

import random

import pytest

import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.te import create_prim_func
from tvm_droplet_ms.search_strategy.history import Measured
from tvm_droplet_ms.search_strategy.starts import Start, choose_starts

A = te.placeholder((8,), name="A")
B = te.compute((8,), lambda i: A[i] * 2.0, name="B")
MODULE = tvm.IRModule({"main": create_prim_func([A, B])})


def measured(choices, secs=1e-3, key="choice"):
    """A trace of one categorical decision for each choice; the key is the sketch's own."""
    sch = Schedule(MODULE, debug_mask="none")
    loop = sch.get_loops(sch.get_sblock("B"))[0]
    for position, choice in enumerate(choices):
        value = sch.sample_categorical(list(range(10)), [0.1] * 10, decision=choice)
        sch.annotate(loop, f"{key} {position}", value)
    return Measured(sch.trace, (secs,))


def differing(one, other):
    return sum(a != b for a, b in zip(one, other))


@pytest.mark.parametrize(
    ("one", "other", "near"),
    [
        ([1] * 8, [1] * 8, True),
        ([1] * 8, [1] * 7 + [2], True),
        ([1] * 8, [1] * 6 + [2] * 2, False),
        ([1] * 8, [2] * 8, False),
        # Of few decisions, one is already more than a quarter.
        ([1] * 4, [1] * 3 + [2], False),
        ([1], [2], False),
        ([1], [1], True),
        ([], [], True),
    ],
)
def test_near_copies_differ_in_fewer_than_a_quarter_of_their_decisions(one, other, near):
    first, second = Start.of(measured(one)), Start.of(measured(other))
    assert first.is_near(second) is near
    assert second.is_near(first) is near


def test_a_tile_is_one_decision_whatever_its_length():
    def tiled(tile):
        sch = Schedule(MODULE, debug_mask="none")
        loop = sch.get_loops(sch.get_sblock("B"))[0]
        sch.split(loop, sch.sample_perfect_tile(loop, 4, decision=tile))
        for position in range(4):
            value = sch.sample_categorical([1, 2], [0.5, 0.5], decision=0)
            sch.annotate(sch.get_sblock("B"), f"choice {position}", value)
        return Start.of(Measured(sch.trace, (1e-3,)))

    assert tiled([8, 1, 1, 1]).is_near(tiled([1, 2, 2, 2]))


def test_different_sketches_are_never_near():
    assert not Start.of(measured([1] * 8)).is_near(Start.of(measured([1] * 8, key="another")))
    assert not Start.of(measured([1] * 8)).is_near(Start.of(measured([1] * 7)))


def test_a_start_knows_its_point():
    trace = measured([3, 1, 4, 1, 5])
    start = Start.of(trace)
    assert start.measured is trace
    assert start.point == (3, 1, 4, 1, 5)
    assert start.sketch.read(trace.trace) == start.point


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_the_best_that_are_not_near_copies_are_kept_in_order(count):
    ranking = [
        measured([1] * 8, 1e-3),
        measured([1] * 7 + [2], 2e-3),
        measured([1] * 8, 3e-3, key="another"),
        measured([2] * 8, 4e-3),
        measured([2] * 7 + [3], 5e-3),
        measured([1] * 6 + [3] * 2, 6e-3),
    ]
    expected = [ranking[0], ranking[2], ranking[3], ranking[5]]
    assert [start.measured for start in choose_starts(ranking, count)] == expected[:count]


def test_of_nothing_nothing_is_chosen():
    assert choose_starts([], 4) == []


@pytest.mark.parametrize("seed", range(10))
def test_random_rankings_against_the_definition(seed):
    generator = random.Random(seed)
    rows = [
        (generator.choice(["one", "two"]), [generator.randint(0, 1) for _ in range(9)])
        for _ in range(30)
    ]
    ranking = [measured(choices, key=key) for key, choices in rows]

    def near(one, other):
        return rows[one][0] == rows[other][0] and differing(rows[one][1], rows[other][1]) < 9 / 4

    expected = []
    for index in range(len(rows)):
        if len(expected) < 6 and not any(near(index, earlier) for earlier in expected):
            expected.append(index)
    chosen = choose_starts(ranking, 6)
    assert [start.measured for start in chosen] == [ranking[index] for index in expected]

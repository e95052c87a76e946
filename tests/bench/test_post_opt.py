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
"""The moves of TVM's droplet, by hand and against TVM's own classes."""

import json
import random

import numpy as np
import pytest

from tvm.s_tir.meta_schedule.post_optimization import droplet as tvm_droplet
from tvm.s_tir.meta_schedule.post_optimization.space import Space as TVMSpace
from tvm_droplet_ms.bench.baselines.post_opt import FAILED_SECS, RecordedTrace, ShippedDroplet

TRACE = [
    [
        ["GetLoops", ["b0"], [], ["l0", "l1"]],
        ["SamplePerfectTile", ["l0"], [2, 16], ["v0", "v1"]],
        ["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v2"]],
        ["Annotate", ["b0", "v2"], ["meta_schedule.unroll_explicit"], []],
        ["Annotate", ["b0", 160], ["meta_schedule.parallel"], []],
        ["SamplePerfectTile", ["l1"], [1, 16], ["v3"]],
        ["EnterPostproc", [], [], []],
        ["Annotate", ["l0", 128], ["pragma_auto_unroll_max_step"], []],
    ],
    [[1, [3, 16]], [2, 1], [5, [5]]],
]
WITH_LAYOUT = [
    [*TRACE[0][:2], ["TransformLayout", ["b0"], [], []], *TRACE[0][2:]],
    [[1, [3, 16]], [3, 1], [6, [5]], [9, [7, 7, 7]]],
]
LAYOUT_BEFORE_ANNOTATION = [
    [*TRACE[0][:4], ["TransformLayout", ["b0"], [], []], *TRACE[0][4:]],
    TRACE[1],
]


def tvm_space(trace):
    """TVM's own space of a trace; it never looks at the workload."""
    space = TVMSpace.__new__(TVMSpace)
    space.cfg = [0, [trace, [1e-3], {}, []]]
    space.config_space = {}
    space.create_space()
    return space


def test_values_of_a_recorded_trace():
    assert RecordedTrace(TRACE).values == [
        [3, 2, 4, 8, 16, 32, 64],
        [16, 2, 4, 8, 32, 64],
        [160, 32, 64, 128, 256, 512],
        [5, 2, 4, 8, 16, 32, 64],
        [128, 256, 512, 1024, 2048],
    ]


def test_write_a_recorded_trace():
    before = json.dumps(TRACE)
    insts, decisions = RecordedTrace(TRACE).write((1, 5, 0, 6, 4))
    assert decisions == [[1, [2, 64]], [2, 1], [5, [64]]]
    assert insts[4][1] == ["b0", 160]
    assert insts[7][1] == ["l0", 2048]
    assert json.dumps(TRACE) == before


def test_a_layout_hides_the_instruction_after_it():
    assert (
        len(RecordedTrace(LAYOUT_BEFORE_ANNOTATION).values) == len(RecordedTrace(TRACE).values) - 1
    )


@pytest.mark.parametrize("trace", [TRACE, WITH_LAYOUT, LAYOUT_BEFORE_ANNOTATION])
def test_recorded_trace_is_tvms(trace):
    ours, theirs = RecordedTrace(trace), tvm_space(trace)
    assert ours.values == list(theirs.config_space.values())
    assert ours.sizes == theirs.dims
    generator = random.Random(1)
    for _ in range(20):
        position = [generator.randrange(size) for size in ours.sizes]
        assert ours.write(position) == theirs.template(values=position, create=False)[0]


def test_a_short_descent_by_hand():
    """Improvement along the first axis, and then nothing: no step by one is taken again."""
    descent = ShippedDroplet([3, 2], [5.0], batch_size=1, max_trials=100)
    assert descent.ask() == [(0, 0), (0, 1), (1, 0)]
    descent.tell([[5.0], [6.0], [4.0]])
    assert descent.best == (1, 0)
    assert descent.ask() == []


def test_a_descent_goes_up_only_and_by_longer_steps():
    descent = ShippedDroplet([5], [5.0], batch_size=1, max_trials=100)
    assert descent.ask() == [(0,)]
    descent.tell([[4.0]])
    assert descent.ask() == [(1,)]
    descent.tell([[3.0]])
    # No step by one, since 1 was visited: by 2.
    assert descent.ask() == [(3,)]
    descent.tell([[2.0]])
    # By 2 lies 0, which was visited, and 3 counts as visited: by 4, past the end.
    assert descent.ask() == [(2,)]


def test_times_after_a_missing_candidate_are_credited_to_others():
    descent = ShippedDroplet([3, 2], [5.0], batch_size=1, max_trials=100)
    assert descent.ask() == [(0, 0), (0, 1), (1, 0)]
    descent.tell([[5.0], [1.0]])  # (0, 1) could not be instantiated; the time is that of (1, 0).
    assert descent.best == (0, 1)


def test_failures_end_a_descent_but_missing_candidates_do_not():
    for told, rest in (([[FAILED_SECS]] * 2, []), ([], [(2,)])):
        descent = ShippedDroplet([4], [5.0], batch_size=2, max_trials=100)
        assert descent.ask() == [(0,), (1,)]
        descent.tell(told)
        assert descent.ask()[:1] == rest


def test_the_last_trial_is_not_used():
    descent = ShippedDroplet([2, 2, 2], [1.0], batch_size=1, max_trials=3)
    assert len(descent.ask()) == 2


class FakeSpace(TVMSpace):
    """TVM's space with axes of given sizes, and an objective in place of programs."""

    def __init__(self, json_file, workload, target):
        self.dims, self._objective = workload, target
        self.rounds = []

    def template(self, values=None, create=True):
        return tuple(values)

    def run(self, positions, log, **_):
        self.rounds.append(positions)
        results = np.full(len(positions), [10000], dtype=list)
        made = [secs for secs in map(self._objective, positions) if secs is not None]
        for i, secs in enumerate(made):
            results[i] = secs
        return results


def surface(seed, failing):
    """A rugged objective of which a part fails to be instantiated, and a part to run."""

    def objective(position):
        draw = random.Random(f"{seed}{position}")
        chance = draw.random()
        if position and any(position) and chance < failing:
            return None if chance < failing / 2 else [FAILED_SECS]
        return [draw.uniform(0.0, 1.0) + 0.1 * sum(position) for _ in range(3)]

    return objective


@pytest.mark.parametrize("failing", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("seed", range(25))
def test_shipped_droplet_is_tvms(seed, failing, monkeypatch, tmp_path):
    """The same positions in the same rounds, up to 45 axes, whose numbers overflow."""
    generator = random.Random(seed)
    sizes = [generator.randint(1, 7) for _ in range(generator.choice([0, 1, 2, 5, 13, 45]))]
    batch_size = generator.choice([1, 4, 16, 64])
    trials = generator.choice([10, 100, 400])
    objective = surface(seed, failing)
    start = [2.0, 3.0]
    monkeypatch.setattr(tvm_droplet, "Space", FakeSpace)
    monkeypatch.setattr(tvm_droplet.os, "cpu_count", lambda: batch_size)
    log = str(tmp_path / "log.json")
    theirs = tvm_droplet.Droplet([0, [None, start]], sizes, objective, log)
    theirs.tune(trials)

    ours = ShippedDroplet(sizes, start, batch_size, trials)
    rounds = []
    while positions := ours.ask():
        rounds.append(positions)
        ours.tell([secs for secs in map(objective, positions) if secs is not None])
    assert rounds == [positions for positions in theirs.space.rounds if positions]
    assert ours.best == tuple(theirs.best_choice[1])


def test_positions_share_a_number_where_it_overflows():
    """What the fault named in the docstring is: 64 axes of 2 values, and 2**64 is 0."""
    space = FakeSpace(None, [2] * 66, None)
    last = [0] * 65 + [1]
    assert space.knob2point(last) == 0
    assert last not in [list(one) for one in ShippedDroplet([2] * 66, [1.0], 100, 999).ask()]

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
"""Descents over real modules with made-up objectives, against brute force."""

import random
from functools import lru_cache

import pytest

import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target
from tvm.te import create_prim_func
from tvm_droplet_ms.search_strategy.candidates import Replayer
from tvm_droplet_ms.search_strategy.coordinate_descent import Tier
from tvm_droplet_ms.search_strategy.decisions import Sketch
from tvm_droplet_ms.search_strategy.descent import Descent, Trial
from tvm_droplet_ms.search_strategy.history import History
from tvm_droplet_ms.search_strategy.significance import Noise

TARGET = Target({"kind": "llvm", "num-cores": 4})
LIMIT = 16


def two_stages():
    a = te.placeholder((12, 10), name="A")
    b = te.compute((12, 10), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((12, 10), lambda i, j: b[i, j] + 1.0, name="C")
    return tvm.IRModule({"main": create_prim_func([a, c])})


def tiled(sch):
    """Two tiles, the parallel annotation, a categorical, a compute location."""
    loops = [
        sch.split(loop, sch.sample_perfect_tile(loop, 2, max_innermost_factor=8))
        for loop in sch.get_loops(sch.get_sblock("C"))
    ]
    sch.reorder(loops[0][0], loops[1][0], loops[0][1], loops[1][1])
    root = sch.get_sblock("root")
    sch.annotate(root, "meta_schedule.parallel", LIMIT)
    unroll = sch.sample_categorical([0, 16, 64], [0.4, 0.3, 0.3])
    sch.annotate(root, "meta_schedule.unroll_explicit", unroll)
    producer = sch.get_sblock("B")
    sch.compute_at(producer, sch.sample_compute_location(producer))


def aliases(sch):
    """Three decisions of which only the sum shows in the module."""
    loop = sch.get_loops(sch.get_sblock("C"))[0]
    first = sch.sample_categorical([0, 2, 1], [0.3, 0.3, 0.4])
    second = sch.sample_categorical([0, 3, 1, 2], [0.25] * 4)
    third = sch.sample_categorical([0, 4, 1, 5], [0.25] * 4)
    sch.annotate(loop, "sum", first + second + third)


SPACES = {"tiled": (tiled, ms.Postproc.create("llvm")), "aliases": (aliases, [])}


@lru_cache
def context():
    return ms.TuneContext(
        two_stages(), target=TARGET, space_generator=ms.space_generator.PostOrderApply()
    )


class Landscape:
    """A space, and made-up times of its modules that depend on nothing but the module."""

    def __init__(self, name, seed, failures=0.0):
        apply, postprocs = SPACES[name]
        self.mod = two_stages()
        for postproc in postprocs:
            postproc._initialize_with_tune_context(context())
        self.generator = random.Random(f"{name} {seed}")
        self.replayer = Replayer(self.mod, postprocs, random.Random(seed))
        design = Schedule(self.mod, seed=seed + 1, debug_mask="none")
        apply(design)
        self.start = self.replayer.replay(design.trace)
        self.sketch = Sketch.of(design.trace)
        self.history = History(self.mod, TARGET)
        self.seed, self.failures = seed, failures
        self.measured = []

    def secs(self, candidate):
        """The time of a module, empty for those that are made to fail; the start does not."""
        generator = random.Random(f"{candidate.module} {self.seed}")
        if generator.random() < self.failures and candidate.module != self.start.module:
            return ()
        return (generator.randint(1, 60) * 1e-4,)

    def measure(self, candidate):
        assert candidate not in self.history, "measured twice"
        self.measured.append(candidate.module)
        secs = self.secs(candidate)
        self.history.add(candidate, secs)
        return secs

    def descend(self, noise=None):
        self.measure(self.start)
        return Descent(
            self.sketch,
            self.start,
            self.replayer,
            self.history,
            noise or Noise(0.05),
            LIMIT,
        )

    def run(self, descent, batch_size):
        while trials := descent.propose():
            modules = [trial.candidate.module for trial in trials]
            assert len(modules) == len(set(modules))
            assert all(trial.candidate not in self.history for trial in trials)
            # The caller's cost model chooses among them.
            self.generator.shuffle(trials)
            batch = trials[:batch_size]
            descent.tell(batch, [self.measure(trial.candidate) for trial in batch])
        return descent.incumbent

    def neighbours(self, candidate):
        """Every candidate one step away, by the real neighbourhood and its replays."""
        neighbourhood = self.replayer.neighbourhood(self.sketch, candidate.trace, LIMIT)
        point = self.sketch.read(candidate.trace)
        steps = [neighbourhood.step(point, step) for step in neighbourhood.directions(point)]
        replays = [self.replayer.replay(self.sketch.write(candidate.trace, step)) for step in steps]
        return [neighbour for neighbour in replays if neighbour is not None]


def is_local_optimum(landscape, candidate):
    (here,) = landscape.secs(candidate)
    times = [landscape.secs(neighbour) for neighbour in landscape.neighbours(candidate)]
    return all(here <= secs[0] for secs in times if secs)


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("batch_size", [1, 3, 100])
@pytest.mark.parametrize("failures", [0.0, 0.3])
def test_ends_in_a_local_optimum(name, batch_size, failures):
    for seed in range(4 if name == "tiled" else 25):
        landscape = Landscape(name, seed, failures)
        found = landscape.run(landscape.descend(), batch_size)
        assert is_local_optimum(landscape, found), seed
        assert landscape.secs(found) == landscape.history.best().secs


@pytest.mark.parametrize("name", SPACES)
def test_every_neighbour_of_the_end_was_measured(name):
    for seed in range(3):
        landscape = Landscape(name, seed)
        found = landscape.run(landscape.descend(), 2)
        measured = set(landscape.measured)
        assert len(measured) == len(landscape.measured)
        assert {neighbour.module for neighbour in landscape.neighbours(found)} <= measured


def values_of(candidate):
    """What the categoricals of a candidate's trace chose."""
    trace = candidate.trace
    insts = [inst for inst in trace.insts if inst.kind.name == "SampleCategorical"]
    return [int(inst.attrs[0][int(trace.decisions[inst])]) for inst in insts]


def test_aliases_are_not_measured_twice():
    """With equal times the descent ends at the start, after one module for each sum around it."""
    choices = ([0, 2, 1], [0, 3, 1, 2], [0, 4, 1, 5])
    for seed in range(5):
        landscape = Landscape("aliases", seed)
        landscape.secs = lambda candidate: (1e-3,)
        assert landscape.run(landscape.descend(), 5) is landscape.start
        here = values_of(landscape.start)
        sums = {
            sum(here) - here[place] + other
            for place, others in enumerate(choices)
            for other in others
        }
        assert len(landscape.measured) == len(sums)


def test_what_was_measured_before_is_judged_for_free():
    """A path of ever faster modules that are all known: nothing of it is measured again."""
    landscape = Landscape("tiled", 3)
    descent = landscape.descend()
    neighbour, *_ = landscape.neighbours(landscape.start)
    further = next(
        n
        for n in landscape.neighbours(neighbour)
        if n.module not in (landscape.start.module, neighbour.module)
    )
    (start_secs,) = landscape.secs(landscape.start)
    landscape.history.add(neighbour, (start_secs / 100,))
    landscape.history.add(further, (start_secs / 1000,))
    trials = descent.propose()
    assert descent.incumbent.module == further.module
    assert len(descent.steps) in (1, 2)
    assert landscape.measured == [landscape.start.module]
    assert not {neighbour.module, further.module} & {trial.candidate.module for trial in trials}


def test_a_space_that_is_all_known_is_descended_without_a_measurement():
    for seed in range(5):
        landscape = Landscape("aliases", seed)
        known = {}
        for first in range(3):
            for second in range(4):
                for third in range(4):
                    trace = landscape.sketch.write(landscape.start.trace, (first, second, third))
                    candidate = landscape.replayer.replay(trace)
                    known[candidate.module] = candidate
        for module, candidate in known.items():
            if module != landscape.start.module:
                landscape.history.add(candidate, landscape.secs(candidate))
        descent = landscape.descend()
        assert descent.propose() == []
        assert is_local_optimum(landscape, descent.incumbent)
        assert landscape.measured == [landscape.start.module]


def test_failures_known_from_before_are_not_proposed():
    landscape = Landscape("tiled", 2)
    descent = landscape.descend()
    neighbours = landscape.neighbours(landscape.start)
    for neighbour in neighbours:
        if neighbour not in landscape.history:
            landscape.history.add(neighbour, ())
    assert descent.propose() == []
    assert descent.incumbent is landscape.start


def test_each_step_is_recorded_with_its_verdict():
    landscape = Landscape("tiled", 1)
    descent = landscape.descend()
    before = landscape.start
    while trials := descent.propose():
        times = [landscape.measure(trial.candidate) for trial in trials]
        descent.tell(trials, times)
        steps = list(descent.steps)
        descent.steps.clear()
        (now,), (then,) = landscape.secs(descent.incumbent), landscape.secs(before)
        assert bool(steps) == (descent.incumbent.module != before.module)
        if steps:
            assert len(steps) == 1
            assert steps[0].verdict.faster
            assert steps[0].verdict.gain == pytest.approx(1.0 - now / then)
            points = [landscape.sketch.read(one.trace) for one in (before, descent.incumbent)]
            assert steps[0].change == landscape.sketch.describe_change(*points)
            assert now == min(secs[0] for secs in times)
        before = descent.incumbent
    assert before.module != landscape.start.module


def test_a_batch_is_compared_with_the_incumbent_of_the_same_batch():
    """The machine became twice as slow between two batches."""
    landscape = Landscape("tiled", 1)
    descent = landscape.descend()
    (start_secs,) = landscape.secs(landscape.start)
    trial, other, *_ = descent.propose()
    batch = [Trial(landscape.start, None), trial, other]
    descent.tell(batch, [(2 * start_secs,), (1.5 * start_secs,), ()])
    assert descent.incumbent is trial.candidate
    (step,) = descent.steps
    assert step.verdict.gain == pytest.approx(0.25)


def test_a_gain_within_the_margin_is_no_step():
    noise = Noise(0.05)
    noise.observe(1.0, 1.05)
    landscape = Landscape("tiled", 1)
    descent = landscape.descend(noise)
    (start_secs,) = landscape.secs(landscape.start)
    trials = descent.propose()
    assert 0.1 < noise.margin < 0.5
    descent.tell(trials, [(0.9 * start_secs,)] * len(trials))
    assert descent.incumbent is landscape.start
    assert descent.steps == []


def test_after_an_improvement_its_direction_is_followed_first():
    for seed in range(20):
        landscape = Landscape("tiled", seed)
        descent = landscape.descend()
        trials = descent.propose()
        assert {trial.proposal.tier for trial in trials} == {Tier.ADJACENT}
        descent.tell(trials, [landscape.measure(trial.candidate) for trial in trials])
        if descent.incumbent is landscape.start:
            continue
        tiers = [trial.proposal.tier for trial in descent.propose()]
        assert tiers == sorted(tiers)
        if tiers and tiers[0] == Tier.FURTHER:
            return
    raise AssertionError("no descent of 20 could follow its direction further")

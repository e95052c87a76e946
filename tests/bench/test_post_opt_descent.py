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
"""The descent that keeps TVM's faults against TVM's own droplet, on the same records."""

import json
import random
import zlib
from types import SimpleNamespace

import pytest
from conformance.strategies import make_evolution
from conformance.workloads import (
    LLVM,
    Chance,
    make_context,
    matmul,
    tile_all,
    tile_and_annotate,
)
from tvm_ffi import structural_hash

from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import BuilderResult
from tvm.s_tir.meta_schedule.database import TuningRecord, Workload
from tvm.s_tir.meta_schedule.post_optimization import droplet as tvm_droplet
from tvm.s_tir.meta_schedule.post_optimization import space as tvm_space
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm_droplet_ms.bench.baselines.post_opt_descent import ShippedDescent
from tvm_droplet_ms.search_strategy.candidates import Replayer
from tvm_droplet_ms.search_strategy.history import Measured


def tile_and_partition(sch):
    """A space in which TVM's droplet asks for what fails: partitions larger than their loop."""
    i, j, _ = sch.get_loops(sch.get_sblock("C"))
    sch.annotate(sch.get_sblock("root"), "meta_schedule.parallel", 64)
    _, inner = sch.sample_perfect_tile(i, n=2, max_innermost_factor=2)
    outer, _ = sch.sample_perfect_tile(j, n=2, max_innermost_factor=16)
    sch.loop_partition(i, [inner, None])
    sch.annotate(sch.get_sblock("root"), "outer", outer)


def first_candidate(space, mod, seed):
    """A candidate of a schedule function's space, and what replays its traces."""
    context = make_context(make_evolution(), mod, space, postprocs=[Chance()])
    replayer = Replayer(context.mod, [Chance()], random.Random(seed))
    sch = Schedule(context.mod, seed=random.Random(seed).randint(1, 2**30))
    space(sch)
    return replayer.replay(sch.trace), replayer


def measure(module):
    """Times by module; one module in five does not build."""
    draw = zlib.crc32(str(module).encode())
    return None if draw % 5 == 0 else [1e-3 * (1.0 + draw % 1000 / 1000)] * 2


class TVMMachine:
    """A builder and a runner in place of those that TVM's droplet makes for itself."""

    def __init__(self):
        self.modules = []

    def build(self, inputs):
        results = []
        for one in inputs:
            self.modules.append(structural_hash(one.mod))
            failed = measure(self.modules[-1]) is None
            path = None if failed else str(len(self.modules) - 1)
            results.append(BuilderResult(path, "made-up error" if failed else None))
        return results

    def run(self, inputs):
        secs = measure(self.modules[int(inputs[0].artifact_path)])
        answer = SimpleNamespace(run_secs=[SimpleNamespace(value=one) for one in secs])
        return [SimpleNamespace(result=lambda: answer)]


@pytest.mark.parametrize("space", [tile_all, tile_and_annotate, tile_and_partition])
@pytest.mark.parametrize("seed", range(4))
def test_descent_is_tvms(space, seed, monkeypatch, tmp_path):
    """TVM's whole droplet on a record: the same programs in the same order, batch by batch."""
    mod = matmul(4, 24, 32)
    start, replayer = first_candidate(space, mod, seed)
    secs = (1.9e-3, 1.9e-3)
    machine = TVMMachine()
    monkeypatch.setattr(ms.builder, "LocalBuilder", lambda **_: machine)
    monkeypatch.setattr(ms.runner, "LocalRunner", lambda **_: machine)
    monkeypatch.setattr(tvm_space, "remove_build_dir", lambda path: None)
    monkeypatch.setattr(tvm_droplet.os, "cpu_count", lambda: 8)
    workload = Workload(replayer.mod)
    info = start.measure_candidate().args_info
    record = TuningRecord(start.trace, workload, list(secs), LLVM, info).as_json()
    as_text = json.dumps([0, record], default=lambda number: number.value)
    theirs = tvm_droplet.Droplet(
        json.loads(as_text), workload.as_json(), LLVM, str(tmp_path / "log.json")
    )
    monkeypatch.setattr(random, "random", random.Random(seed).random)
    theirs.tune(60)

    ours = ShippedDescent(
        Measured(start.trace, secs), replayer, random.Random(seed), batch_size=8, max_trials=60
    )
    modules = descend(ours, measure)
    assert modules == machine.modules
    assert len(modules) > 5
    if space is tile_and_partition:
        assert set(replayer.dropped) == {"TVM's droplet: ScheduleError"}


def test_a_fault_of_ours_is_not_taken_for_a_drop():
    """What no schedule primitive raises ends the run; TVM's own code would skip the candidate."""

    class Broken:
        def random(self):
            raise TypeError("a fault of ours")

    start, replayer = first_candidate(tile_all, matmul(4, 24, 32), 1)
    descent = ShippedDescent(
        Measured(start.trace, (1.9e-3,)), replayer, Broken(), batch_size=8, max_trials=60
    )
    with pytest.raises(TypeError, match="a fault of ours"):
        descent.ask()
    assert not replayer.dropped


def descend(descent, measure_module):
    """The modules that a descent measures."""
    modules = []
    while candidates := descent.ask():
        modules += [candidate.module for candidate in candidates]
        times = [measure_module(candidate.module) for candidate in candidates]
        descent.tell([RunnerResult(secs, None if secs else "made-up error") for secs in times])
    return modules


@pytest.mark.parametrize("seed", range(4))
def test_what_a_table_has_not_is_a_trial_that_fails(seed):
    """Without postprocessors nothing takes its place: the descent is one in which it fails."""

    def is_inside(module):
        return module % 3 != 0

    def measure_inside(module):
        return measure(module) if is_inside(module) else None

    class Table:
        def __contains__(self, module):
            return is_inside(module)

    mod = matmul(16, 24, 32)
    start, _ = first_candidate(tile_all, mod, seed)
    bare = Replayer(mod, [], random.Random(seed)).replay(start.trace)
    best = Measured(bare.trace, (1.9e-3,))

    def run(modules):
        replayer = Replayer(mod, [], random.Random(seed))
        return ShippedDescent(
            best, replayer, random.Random(seed), modules, batch_size=8, max_trials=60
        )

    measured = descend(run(None), measure_inside)
    assert descend(run(Table()), measure_inside) == measured
    inside = [module for module in measured if is_inside(module)]
    assert len(measured) > len(inside) > 5

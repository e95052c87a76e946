# SPDX-License-Identifier: Apache-2.0
"""A contest of first picks with made-up builders, runners and clocks."""

from concurrent.futures import Future
from types import SimpleNamespace

from tvm_ffi import structural_hash

import tvm
from tvm import te, topi
from tvm.ir import save_json
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import BuilderResult
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.target import Target
from tvm_droplet_ms.session.roofline import MachineRates
from tvm_droplet_ms.tuning.picks.pick_contest import PickContest
from tvm_droplet_ms.tuning.picks.picks import FirstPick, FirstPicks, PickFile

TARGET = Target({"kind": "llvm", "num-cores": 1})
RATES = MachineRates(100e9, (1000,), (10e9,))


def relu(rows, weight=1):
    data = te.placeholder((rows, 32), name="data")
    mod = tvm.IRModule({"main": te.create_prim_func([data, topi.nn.relu(data)])})
    return ms.ExtractedTask(f"relu{rows}", mod, TARGET, [mod], weight)


def split(mod, factor):
    """The trace of a schedule that no other factor gives."""
    schedule = Schedule(mod, debug_mask="none")
    block = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    schedule.split(schedule.get_loops(block)[-1], [None, factor])
    return schedule.trace


def applied(mod, trace):
    schedule = Schedule(mod, debug_mask="none")
    trace.apply_to_schedule(schedule, remove_postproc=False)
    return structural_hash(schedule.mod)


class Table:
    """A builder and a runner that look times up by the module; None cannot be built."""

    def __init__(self, secs, default=1.0):
        self.secs, self.default, self.built, self.ends = secs, default, [], []
        self.ran = []

    def end_by(self, moment):
        self.ends.append(moment)

    def build(self, inputs):
        hashes = [structural_hash(each.mod) for each in inputs]
        self.built.append(hashes)
        paths = [None if self._of(h) is None else f"/nowhere/{h}/a.so" for h in hashes]
        return [BuilderResult(path, None if path else "made up") for path in paths]

    def run(self, inputs):
        hashes = [int(str(each.artifact_path).split("/")[-2]) for each in inputs]
        self.ran += hashes
        return [SimpleNamespace(result=lambda h=h: self._result(h)) for h in hashes]

    def _of(self, key):
        return self.secs.get(key, self.default)

    def _result(self, key):
        secs = self._of(key)
        return RunnerResult([secs], None) if secs < 100 else RunnerResult(None, "it crashed")


class Sampler:
    """Answers with two schedules; a task of 24 rows fails."""

    def submit_finalists(self, request, count):
        future = Future()
        mod = request.mod
        if int(mod["main"].params[0].shape[0]) == 24:
            future.set_exception(RuntimeError("made up"))
        else:
            future.set_result([save_json(split(mod, f).as_json()) for f in (4, 8)][:count])
        return future


def contest(table, tmp_path, clock=lambda: 0.0):
    return PickContest(
        TARGET,
        RATES,
        Sampler(),
        (table, table),
        PickFile(tmp_path),
        seed=0,
        known=None,
        clock=clock,
    )


def picked(*tasks):
    picks = FirstPicks()
    for task in tasks:
        mod = task.dispatched[0]
        picks.keep(FirstPick(mod, split(mod, 2), ((0, (2,)),), (0.9,)), TARGET)
    return picks

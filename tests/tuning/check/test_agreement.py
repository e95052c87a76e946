# SPDX-License-Identifier: Apache-2.0
"""Every accepted model ends in an executable that agrees, and only the guilty are blamed."""

import itertools
import math
import time
from types import SimpleNamespace

import numpy as np
import pytest

import tvm
from tvm import relax
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T
from tvm.target import Target
from tvm_droplet_ms.frontends.imported import Reference
from tvm_droplet_ms.session.errors import LateKernelsError, TooLateError
from tvm_droplet_ms.session.roofline import NAIVE_RATE, naive_secs
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.tuning import ModelError, agreement, model_tuning, tune
from tvm_droplet_ms.tuning.agreement import Agreement
from tvm_droplet_ms.tuning.check.diagnosis import (
    SearchClock,
    TooLate,
    all_changes,
    first_change,
    without_wrong_schedules,
)
from tvm_droplet_ms.tuning.check.judgment import Judgment
from tvm_droplet_ms.tuning.check.output_check import OutputCheck
from tvm_droplet_ms.tuning.kernel_tuner import KernelTuner
from tvm_droplet_ms.tuning.model_kernels import ModelKernels
from tvm_droplet_ms.tuning.run_context import PhaseTimer
from tvm_droplet_ms.tuning.schedules import by_workload

TARGET = Target({"kind": "llvm", "num-cores": 1})
X = np.random.default_rng(0).standard_normal((2, 16)).astype("float32")


@T.prim_func(s_tir=True)
def scaled(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
    T.func_attr({"global_symbol": "main", "tirx.noalias": True})
    for i in range(16):
        with T.sblock("b"):
            v = T.axis.spatial(16, i)
            b[v] = a[v] * T.float32(2)


class MadeUpKernels:
    """Kernels of which a wrong schedule adds to the outputs. It counts what is compiled.

    ``count``: the number of kernels. ``error``: what they are off by without any schedule.
    """

    def __init__(self, count, wrong=(), error=0.0, import_error=0.0, tag=0):
        mods = [IRModule({"main": scaled.with_attr("number", n)}) for n in range(count)]
        self.tasks = [
            SimpleNamespace(task_name=f"k{n}", dispatched=[mod], weight=1)
            for n, mod in enumerate(mods)
        ]
        self.untouched, self.chosen = set(), {}
        self.wrong, self.error, self.import_error, self.tag = dict(wrong), error, import_error, tag
        self.builds = 0

    def record(self, number, tag):
        mod = self.tasks[number].dispatched[0]
        schedule = Schedule(mod)
        schedule.annotate(schedule.get_sblock("b"), "tag", tag)
        workload = MemoryDatabase().commit_workload(mod)
        return TuningRecord(schedule.trace, workload, [1.0], TARGET)

    def schedules(self):
        database = MemoryDatabase()
        for number, task in enumerate(self.tasks):
            if task.task_name not in self.untouched:
                record = self.record(number, self.tag)
                database.commit_workload(record.workload.mod)
                database.commit_tuning_record(record)
        return database

    def compile(self, schedules=None, late_at=float("inf")):
        self.builds += 1
        records = (self.schedules() if schedules is None else schedules).get_all_tuning_records()
        off = self.error
        for record in records:
            number = int(record.workload.mod["main"].attrs["number"])
            if f'"tag", ann_val={self.tag}' in str(record.trace):
                off += self.wrong.get(number, 0.0)
        return lambda inputs: [2 * inputs[0] + np.float32(off)]

    def reference(self, graph):
        return MadeUpKernels(1, error=self.import_error + float(graph.attrs["error"]))


def check():
    return OutputCheck(Reference("NumPy", lambda x: [2 * x[0]]), ((X,),), ([2 * X],), 1e-4)


def agreeing(make, notes, mod=None, passes=(), checked=None):
    """What brings the made-up kernels of a model to agree; ``make``: called with a graph."""
    context = SimpleNamespace(phases=PhaseTimer(), note=notes.append)
    tuner = SimpleNamespace(context=context, kernels=make, pick=lambda *_: None)
    imported = SimpleNamespace(mod=IRModule({}) if mod is None else mod, locate=None)
    return Agreement(imported, passes, checked or check(), tuner)


def clock(secs=float("inf")):
    return SearchClock(StopRequest(secs))


class TestSchedules:
    def test_the_guilty_are_left_out_and_named(self):
        kernels, notes = MadeUpKernels(40, {3: 1.0, 17: -0.5}), []
        compiled = without_wrong_schedules(kernels, check(), clock(), notes.append)
        assert check().agrees(compiled)
        assert kernels.untouched == {"k3", "k17"}
        assert notes == ["schedules of k3, k17 gave other outputs: these are left untouched"]
        assert kernels.builds < 20

    def test_nobody_is_blamed_without_time(self):
        kernels, notes = MadeUpKernels(5, {3: 1.0}), []
        compiled = without_wrong_schedules(kernels, check(), clock(0.0), notes.append)
        assert check().agrees(compiled)
        assert kernels.untouched == {f"k{n}" for n in range(5)}
        assert notes == [
            "schedules gave other outputs: all kernels are left untouched, because the time was "
            "too short to find which"
        ]

    def test_what_was_found_right_stays_without_time(self):
        """The heaviest kernels come first: those with the larger weights."""
        kernels, notes = MadeUpKernels(8, {3: 1.0}), []
        for number, task in enumerate(kernels.tasks):
            task.weight = 1 + number
        times = iter([9.0, 9.0, 9.0, 0.0])  # All are wrong, the first four right, and six wrong.

        class Stop:
            is_due = False
            left = property(lambda _: next(times))

        compiled = without_wrong_schedules(kernels, check(), SearchClock(Stop()), notes.append)
        assert check().agrees(compiled)
        assert kernels.untouched == {"k0", "k1", "k2", "k3"}
        assert notes == [
            "schedules gave other outputs: 4 of 8 kernels are left untouched, because the time was "
            "too short to find which"
        ]

    def test_none_is_wrong_where_the_kernels_are(self):
        kernels, notes = MadeUpKernels(5, error=1.0), []
        assert without_wrong_schedules(kernels, check(), clock(), notes.append) is None
        assert not kernels.untouched and not notes

    def test_the_first_schedules_come_back(self):
        kernels, notes = MadeUpKernels(5, {3: 1.0}, tag=1), []
        first = MadeUpKernels(4)
        right = by_workload(first.schedules())
        compiled = without_wrong_schedules(kernels, check(), clock(), notes.append, right)
        assert check().agrees(compiled) and not kernels.untouched
        assert list(map(str, kernels.chosen)) == [
            str(key) for key, record in right.items() if "k3" == _name(first, record)
        ]
        assert notes == ["schedules of k3 gave other outputs: these keep their first ones"]


def _name(kernels, record):
    return kernels.tasks[int(record.workload.mod["main"].attrs["number"])].task_name


class LateKernels(MadeUpKernels):
    """Kernels of which one takes the compiler too long with its schedule.

    ``is_plain_late``: whether that holds for its plain schedule too; None if it has none.
    """

    def __init__(self, count, *, is_plain_late):
        super().__init__(count)
        self.is_plain_late, self.plain = is_plain_late, set()

    def compile(self, schedules=None, late_at=float("inf")):
        late = "k1" not in self.untouched | self.plain or (self.plain and self.is_plain_late)
        if late and "k1" not in self.untouched:
            raise LateKernelsError(["k1"], f"late at {late_at}")
        return super().compile(schedules)

    def go_plain(self, names, until):
        if self.is_plain_late is None:
            return [], self.leave(names)
        self.plain.update(names)
        return list(names), []

    def leave(self, names):
        self.untouched.update(names)
        return list(names)


@pytest.mark.parametrize(
    ("is_plain_late", "untouched", "ends"),
    [
        (False, set(), ["they have plain ones"]),
        (True, {"k1"}, ["they have plain ones", "they were left"]),
        (None, {"k1"}, ["they were left"]),
    ],
)
def test_a_kernel_that_is_not_compiled_in_time_has_a_plain_schedule(is_plain_late, untouched, ends):
    notes, kernels = [], LateKernels(3, is_plain_late=is_plain_late)
    made = agreeing(lambda _: kernels, notes).first(StopRequest(5.0))
    assert check().agrees(made.compiled) and kernels.untouched == untouched
    late = "the compiler took too long for the schedules of k1, or refused them"
    assert notes == [f"{late}: {end}" for end in ends]


class RefusedKernels(MadeUpKernels):
    """Kernels of which the measured schedule of one is refused by the compiler."""

    def compile(self, schedules=None, late_at=float("inf")):
        if not self.chosen and self.tag:
            raise LateKernelsError(["k1"], f"late at {late_at}")
        return super().compile(schedules)

    def go_back(self, names, records):
        self.chosen = dict(records)
        return list(names)


class TestLast:
    """The last executable, where the compiler refuses what was measured."""

    def agreement(self, kernels, notes):
        found = agreeing(lambda _: kernels, notes)
        made = found.first(StopRequest(5.0))
        kernels.tag = 1
        return found, made

    def test_a_refused_kernel_has_its_first_schedule_again(self):
        kernels, notes = RefusedKernels(3), []
        found, made = self.agreement(kernels, notes)
        chosen, last = found.last(kernels, kernels, made.compiled, StopRequest(5.0))
        assert chosen is kernels and check().agrees(last)
        assert len(kernels.chosen) == 3
        assert notes == [
            "the compiler took too long for the schedules of k1, or refused them: they have the "
            "schedules that the run began with"
        ]

    def test_where_winograd_kernels_are_refused_the_direct_ones_are_taken(self):
        direct, winograd, notes = MadeUpKernels(2), RefusedKernels(2, tag=1), []
        found, made = self.agreement(direct, notes)
        chosen, last = found.last(winograd, direct, made.compiled, StopRequest(5.0))
        assert chosen is direct and check().agrees(last)
        assert notes == ["the compiler refused k1: all convolutions are computed directly"]


def adding(name, error):
    """A pass that adds to the error of a module."""

    @tvm.transform.module_pass(opt_level=0, name=name)
    def step(mod, _context):
        return mod.with_attr("error", mod.attrs["error"] + error)

    return name, step


class TestPasses:
    def agreement(self, passes, **errors):
        """The model that it hands over, and its notes. Applied passes add to the kernels' error."""
        mod, self.notes = IRModule({}).with_attr("error", 0.0), []

        def make(graph):
            return MadeUpKernels(2, error=float(graph.attrs["error"]), **errors)

        return agreeing(make, self.notes, mod, passes).first

    def test_the_guilty_passes_are_left_out_and_named(self):
        guilty = ("p2", "p5")
        steps = [adding(f"p{n}", 1.0 if f"p{n}" in guilty else 0.0) for n in range(9)]
        made = self.agreement(steps)(StopRequest())
        assert check().agrees(made.compiled)
        words = "the graph pass {} changed the outputs and was left out"
        assert self.notes == [words.format(name) for name in guilty]

    def test_no_pass_is_blamed_without_time(self):
        made = self.agreement([adding("a", 0.0), adding("b", 1.0)])(StopRequest(0.0))
        assert check().agrees(made.compiled)
        assert self.notes == [
            "the graph passes gave other outputs: all are left out, because the time was too "
            "short to find which"
        ]

    def test_a_wrong_import_is_said_and_nobody_is_blamed(self):
        run = self.agreement([adding("a", 0.0)], wrong={0: 1.0}, import_error=1.5)
        message = r"TVM's import .* than NumPy: the outputs differ by 5\.7e-01"
        with pytest.raises(ModelError, match=message):
            run(StopRequest())
        assert not self.notes

    @pytest.mark.parametrize(("left", "is_asked"), [(60.0, True), (-3.0, False)])
    def test_rounding_is_asked_for_after_ctrl_c_and_in_the_grace(self, monkeypatch, left, is_asked):
        """Otherwise an executable that is right would be thrown away for one to be compiled."""

        def ask(judgment, _kernels, compiled, _stop):
            for number, inputs in enumerate(judgment._check.inputs):
                judgment._check.excuse(number, [compiled(inputs)])
            return True

        monkeypatch.setattr(Judgment, "ask", ask)
        stop = StopRequest(time.monotonic() + left)
        if is_asked:
            stop._asked.set()
        made = self.agreement([adding("a", 1e-3)])(stop)
        assert float(made.graph.attrs["error"]) == 1e-3
        (note,) = self.notes
        assert note.startswith("some outputs are ill-conditioned")

    @pytest.mark.parametrize("is_slow", [True, False])
    def test_without_time_to_judge_the_difference_is_said(self, monkeypatch, is_slow):
        """A model that is too slow without schedules is refused at once."""

        def ask(*_):
            raise TooLateError("the time is too short: 3 of 59 kernels were compiled")

        monkeypatch.setattr(Judgment, "ask", ask)
        monkeypatch.setattr(agreement, "naive_secs", lambda _: 60.0 * is_slow)
        with pytest.raises(ModelError, match=r"differ from those of NumPy by .* time is too short"):
            self.agreement([adding("a", 1.0)])(StopRequest(0.0) if is_slow else StopRequest())

    def test_a_graph_that_cannot_be_prepared_in_time_ends_in_the_import(self):
        mod, notes = IRModule({}).with_attr("error", 0.0), []
        made_before = []

        def make(_graph):
            if made_before:
                raise ModelError("the time is too short")
            made_before.append(1)
            return MadeUpKernels(2, error=1.0)

        steps = [adding("a", 1.0)]
        made = agreeing(make, notes, mod, steps).first(StopRequest())
        assert check().agrees(made.compiled)
        assert notes == ["the graph pass a changed the outputs and was left out"]

    def test_what_was_not_checked_is_said(self):
        mod, notes = IRModule({}).with_attr("error", 0.0), []
        nothing = OutputCheck(Reference("NumPy", lambda x: [0 * x[0]]), ((X,),), ([0 * X],), 1e-4)
        kernels = SimpleNamespace(
            tasks=[], compile=lambda **_: lambda inputs: [0 * inputs[0]], schedules=MemoryDatabase
        )
        agreeing(lambda _: kernels, notes, mod, checked=nothing).first(StopRequest())
        assert ["nothing was checked there" in note for note in notes] == [True]

    def test_where_only_our_kernels_differ_those_of_tvm_are_taken(self):
        mod, notes = IRModule({}).with_attr("error", 0.0), []
        made = agreeing(lambda _: MadeUpKernels(2, error=1.0), notes, mod).first(StopRequest())
        assert check().agrees(made.compiled)
        assert notes == [
            "the kernels gave other outputs: those of TVM are taken, without schedules"
        ]


@I.ir_module
class Doubled:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            twice = R.multiply(x, R.const(2.0, "float32"))
            result = R.nn.relu(twice)
            R.output(result)
        return result


@I.ir_module
class Tripled:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 4), "float32"):
        with R.dataflow():
            thrice = R.multiply(x, R.const(3.0, "float32"))
            result = R.nn.relu(thrice)
            R.output(result)
        return result


@tvm.transform.module_pass(opt_level=0, name="Harmless")
def harmless(mod, _context):
    return mod


@tvm.transform.module_pass(opt_level=0, name="Harmful")
def harmful(mod, _context):
    return relax.transform.BindParams("main", {})(
        IRModule({"main": Tripled["main"]}, attrs=mod.attrs)
    )


@relax.transform.function_pass(opt_level=0, name="Broken")
class Broken:
    def transform_function(self, _function, _mod, _context):
        raise ValueError("no order of 5 axes")


class TestTune:
    x = np.random.default_rng(0).standard_normal((2, 4)).astype("float32")

    @pytest.fixture(autouse=True)
    def _without_measuring(self, monkeypatch):
        monkeypatch.setattr(KernelTuner, "measure_picks", lambda *_: 0)

    def test_a_pass_that_changes_the_outputs_is_left_out_and_named(self, monkeypatch, tmp_path):
        """And so is one that raises."""
        passes = [("Harmless", harmless), ("Broken", Broken()), ("Harmful", harmful)]
        monkeypatch.setattr(model_tuning, "graph_passes", lambda *_, **__: [*passes, passes[1]])
        result = tune(Doubled, trials=0, work_dir=tmp_path)
        np.testing.assert_allclose(result(self.x), np.maximum(2 * self.x, 0), rtol=1e-6)
        assert result.notes == (
            "the graph pass Broken raised ValueError (no order of 5 axes) and was left out",
            "the graph pass Harmful changed the outputs and was left out",
        )

    def test_a_kernel_whose_schedule_changes_the_outputs_is_left_untouched(
        self, monkeypatch, tmp_path
    ):
        true_build = model_tuning.ModelKernels.compile

        def compile_wrongly(kernels, schedules=None, late_at=None):
            # Compiles another model for as long as the kernel has a schedule.
            schedules = kernels.schedules() if schedules is None else schedules
            if len(schedules):
                kernels = model_tuning.ModelKernels(Tripled, TARGET, MemoryDatabase())
                schedules = MemoryDatabase()
            return true_build(kernels, schedules)

        monkeypatch.setattr(model_tuning.ModelKernels, "compile", compile_wrongly)
        result = tune(Doubled, trials=0, work_dir=tmp_path)
        np.testing.assert_allclose(result(self.x), np.maximum(2 * self.x, 0), rtol=1e-6)
        assert "gave other outputs: these are left untouched" in result.notes[0]
        assert [row.schedule for row in result.kernels] == ["untouched"]


def test_the_time_without_schedules_goes_by_the_operations():
    kernels = ModelKernels(Doubled, TARGET, MemoryDatabase())
    assert naive_secs(kernels.tasks) == pytest.approx(2 * 8 / NAIVE_RATE)


class TestFirstChange:
    @pytest.mark.parametrize("count", [1, 2, 3, 7, 67])
    def test_a_lone_culprit_is_found_in_few_steps(self, count):
        for culprit in range(count):
            asked = []

            def agrees(number, culprit=culprit, asked=asked):
                asked.append(number)
                return number <= culprit

            assert first_change(count, agrees) == culprit
            assert len(asked) <= math.ceil(math.log2(count))

    def test_is_where_agreement_ends_whatever_the_pattern(self):
        for pattern in itertools.product([True, False], repeat=5):
            agrees = [True, *pattern, False]
            found = first_change(len(agrees) - 1, agrees.__getitem__)
            assert agrees[found] and not agrees[found + 1]


class TestAllChanges:
    def test_finds_every_culprit_and_no_other(self):
        for culprits in itertools.chain.from_iterable(
            itertools.combinations(range(6), size) for size in range(7)
        ):
            found = all_changes(6, lambda kept, culprits=culprits: not set(kept) & set(culprits))
            assert sorted(found) == list(culprits)

    def test_what_is_wrong_together_only_needs_one_of_the_two(self):
        assert len(all_changes(6, lambda kept: not {1, 4} <= set(kept))) == 1

    def test_a_verdict_that_changes_convicts_nobody_it_cleared(self):
        answers = iter([False, True, True, True])
        assert all_changes(2, lambda kept: next(answers)) == [1]


class TestSearchClock:
    def test_ends_when_a_step_as_long_as_the_longest_does_not_fit(self):
        now = 0.0
        clock = SearchClock(StopRequest(10.0, clock=lambda: now), lambda: now)
        with clock.step():
            now = 4.0
        with clock.step():
            now = 7.0
        with pytest.raises(TooLate), clock.step():
            pytest.fail("a step of 4 s does not fit into 3")

    def test_no_step_begins_after_the_end(self):
        with pytest.raises(TooLate), SearchClock(StopRequest(0.0)).step():
            pytest.fail("it is too late")

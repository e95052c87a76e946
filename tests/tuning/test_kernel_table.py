# SPDX-License-Identifier: Apache-2.0
"""The kernels of a model at the begin of its search, and results in a notebook."""

import dataclasses
import math
import time
from pathlib import Path
from types import SimpleNamespace

from tvm_ffi import structural_hash

import tvm
from tvm import te
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import ExtractedTask
from tvm.s_tir.meta_schedule.builder import BuilderResult
from tvm.s_tir.meta_schedule.database import MemoryDatabase, TuningRecord
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.testing.te_workload import matmul
from tvm.target import Target
from tvm_droplet_ms.display.model_state import ModelKernel
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.tuning.kernel.check.verification import KernelTime
from tvm_droplet_ms.tuning.kernel.kernel_result import KernelResult
from tvm_droplet_ms.tuning.kernel_table import begun_kernels
from tvm_droplet_ms.tuning.picks.picks import FirstPick, FirstPicks
from tvm_droplet_ms.tuning.result import KernelRow, Latency, TuneResult
from tvm_droplet_ms.tuning.run_context import RunObserver
from tvm_droplet_ms.tuning.tune_shapes import ShapesResult

TARGET = Target({"kind": "llvm", "num-cores": 1})


def product(columns):
    return tvm.IRModule({"main": te.create_prim_func(matmul(8, columns, 8))})


def task(name, mod, weight=1):
    return ExtractedTask(name, mod, TARGET, [mod], weight)


def begun(mod, weight, secs, picked=None, replaced=None, records=(), untouched=()):
    """The kernel of one task named "a"; picked, replaced: the seconds of its picks."""
    database, picks = MemoryDatabase(), FirstPicks()
    trace = Schedule(mod).trace
    for secs_alone in records:
        workload = database.commit_workload(mod)
        database.commit_tuning_record(TuningRecord(trace, workload, [secs_alone], TARGET))
    picks.keep(FirstPick(mod, trace, (), (), picked, replaced), TARGET)
    kernels = SimpleNamespace(tasks=[task("a", mod, weight)], untouched=set(untouched), picks=picks)
    row = KernelRow("a", weight, secs, 1.0, 0.5, len(records), "predicted")
    return begun_kernels(kernels, [row], database, TARGET)


def test_first_and_best_times_of_kernels():
    mod = product(8)

    def kernel(**options):
        # Two calls take 6 s inside the model, and half of that is the roofline.
        (found,) = begun(mod, 2, 6.0, **options).values()
        assert (found.weight, found.bound_secs) == (2, 1.5)
        return found.first_secs, found.best_secs, found.trials

    # Nothing was measured alone.
    assert kernel() == (3.0, 3.0, 0)
    # The schedule of the first executable was measured alone, and is the fastest or is not.
    assert kernel(picked=2.5, replaced=2.5) == (2.5, 2.5, 0)
    assert kernel(picked=2.0, replaced=2.5) == (2.5, 2.0, 0)
    # It could not be measured, and another was.
    assert kernel(picked=2.0, replaced=math.inf) == (3.0, 2.0, 0)
    # Earlier runs measured it, as a pick or in a trial.
    assert kernel(picked=2.5, records=[4.0]) == (2.5, 2.5, 1)
    assert kernel(picked=2.0, replaced=3.5, records=[4.0, 2.75]) == (2.75, 2.0, 2)


def test_kernels_that_are_not_searched_are_left_out():
    mod = product(8)
    assert begun(mod, 1, 1.0, untouched={"a"}) == {}
    row = KernelRow("a", 1, 1.0, 1.0, 0.0, 0, "untouched")
    kernels = SimpleNamespace(tasks=[task("a", mod)], untouched=set(), picks=FirstPicks())
    assert begun_kernels(kernels, [row], MemoryDatabase(), TARGET) == {}
    assert begun_kernels(kernels, [], MemoryDatabase(), TARGET) == {}


def test_measurements_reach_the_model(tmp_path):
    """The line of a batch: 40 us less of 400 us by two calls."""
    mod, lines = product(8), []
    key = structural_hash(mod)
    watch = RunObserver(tmp_path, progress=lines.append)
    watch.know_records([task("a", mod)], MemoryDatabase(), TARGET)
    kernels = {key: ModelKernel(2, 1e-6, 50e-6, 50e-6)}
    scheduler = SimpleNamespace(
        tasks_=[SimpleNamespace(ctx=SimpleNamespace(task_name="a", mod=mod))]
    )

    def measure(secs):
        built, ran = BuilderResult("", None), RunnerResult([secs], None)
        watch.callbacks[-1]._inst.apply(scheduler, 0, [None], [built], [ran])
        watch.close()

    measure(60e-6)
    watch.follow_model(400e-6, kernels, StopRequest(time.monotonic() + 60.2))
    measure(30e-6)
    watch.leave_model()
    measure(20e-6)
    first, second, third = lines
    assert first.startswith("a: ") and third.startswith("a: ")
    assert second.startswith("model about 0.36 ms, 10% less, 0 of 60 s, another minute about ")
    assert kernels[key].trials == 2


def tuned(kind=TuneResult, **options):
    """A made-up result whose texts are not plain HTML."""
    return kind(
        compiled=None,
        inputs=(SimpleNamespace(name="<x>", shape=(1, 3)),),
        target=TARGET,
        threads=1,
        latency=Latency((0.25e-3,)),
        deviation=1e-6,
        check=SimpleNamespace(reference=SimpleNamespace(name="a & b")),
        kernels=(KernelRow("<b>kernel</b>", 2, 0.2e-3, 5.0, 0.5, 8, "measured"),),
        trials=8,
        why_ended="time",
        failures={"build": 1},
        schedules={},
        secs_of={},
        work_dir=Path("<dir>"),
        info=None,
        notes=("<i>a note</i>",),
        **options,
    )


def test_a_deviation_of_zero_is_plain():
    result = dataclasses.replace(tuned(), deviation=0.0)
    assert "<td>0 of the scale of its row, from a &amp; b</td>" in result._repr_html_()
    assert "deviation 0, work_dir" in repr(result)


def test_a_result_is_a_table_in_a_notebook():
    html = tuned()._repr_html_()
    for cell in (
        "<td>0.25 ms (0.25 to 0.25) on 1 thread(s)</td>",
        "<td>1.0e-06 of the scale of its row, from a &amp; b</td>",
        "<td>8, ended by time; failed: 1 build</td>",
        "<td>&lt;dir&gt;</td>",
        "<td>&lt;i&gt;a note&lt;/i&gt;</td>",
        "<td>&lt;b&gt;kernel&lt;/b&gt;</td><td>2</td><td>0.200</td>",
    ):
        assert cell in html
    assert all(text not in html for text in ("<b>", "<i>", "<dir>", "http", "src="))


def test_of_several_shapes_each_has_its_tables():
    html = tuned(ShapesResult, of_shapes=(tuned(), tuned()))._repr_html_()
    titles = [html.index(f"<p>main{n}: &lt;x&gt; (1, 3)</p><table>") for n in ("", "_1")]
    assert titles == sorted(titles)
    assert html.endswith("<p>note: &lt;i&gt;a note&lt;/i&gt;</p>")
    assert "<x>" not in html and "<i>" not in html


def test_a_kernel_is_its_text_in_a_notebook():
    result = object.__new__(KernelResult)
    result.__dict__.update(
        name="<k>",
        time=KernelTime(20e-6, 19e-6, 21e-6),
        untuned=None,
        target=TARGET,
        flop=float("nan"),
        is_untuned=True,
        verified=False,
        reason="no & none",
        deviation=float("nan"),
        trials=8,
        known_trials=0,
        failures={"<stdin>: no": 1},
        wrong=(),
        unchecked=(),
        why_ended="trials",
        forecast="",
        library=Path("k.so"),
    )
    html = result._repr_html_()
    assert html.count("<tr") == len(str(result).splitlines()) == 6
    assert "<td>&lt;k&gt;: 20 us (90%: 19 to 21)</td>" in html
    assert "<td>1 failed: &lt;stdin&gt;: no</td>" in html and "no &amp; none" in html
    assert "<k>" not in html and "<stdin>" not in html

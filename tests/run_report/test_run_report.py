# SPDX-License-Identifier: Apache-2.0
"""The page of a run, from records that are written here."""

import json
import math
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_up_runs import RECORDS, commit_products, multiply, write_records

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.database import JSONDatabase, TuningRecord
from tvm.script import tirx
from tvm.target import Target
from tvm_droplet_ms.cli import main
from tvm_droplet_ms.cli.manifest import run_kept
from tvm_droplet_ms.cli.report import following
from tvm_droplet_ms.cli.report.curve import apart
from tvm_droplet_ms.cli.report.history import (
    ReportError,
    Trial,
    decision_names,
    read_events,
    read_history,
    target_names,
)
from tvm_droplet_ms.cli.report.page import decision_worths, write_report
from tvm_droplet_ms.session.work_dir import open_work_dir


def record(workload, secs, tile, choice, kinds=("SamplePerfectTile", "SampleCategorical")):
    insts = [["GetSBlock", [], [], []], *([kind, [], [], []] for kind in kinds)]
    insts += [["EnterPostproc", [], [], []], ["SampleCategorical", [], [], []]]
    decisions = [[1, tile], [2, choice], [4, 0]]
    return [workload, [[insts, decisions], secs, {"kind": "llvm"}, []]]


ROWS = [
    record(0, [4e-3], [4, 2], 0),
    record(0, [1e10], [2, 4], 0),
    record(1, [1e-6, 3e-6], [8, 1], 1),
    record(0, [2e-3], [4, 2], 1),
    record(0, [3e-3], [1, 8], 1),
    record(0, None, [8, 1], 1),
]


@pytest.fixture
def run(tmp_path):
    commit_products(tmp_path)
    write_records(tmp_path, ROWS)
    return tmp_path


def test_trials_are_read_in_their_order(run):
    first, second = read_history(run)
    assert [trial.secs for trial in first.trials] == [4e-3, math.inf, 2e-3, 3e-3, math.inf]
    assert first.best_so_far == [4e-3, 4e-3, 2e-3, 2e-3, 2e-3]
    assert (first.failures, first.last_gain, first.best.line) == (2, 3, 3)
    # What postprocessors sampled is no decision of the search.
    assert first.best.decisions == (("tile of a loop", "[4, 2]"), ("choice", "1"))
    assert second.trials[0].secs == pytest.approx(2e-6)


def test_worth_compares_what_differs_in_one_decision(run):
    first, second = read_history(run)
    # The tile: 2 ms and 3 ms with choice 1. The choice: 4 ms and 2 ms with tile [4, 2].
    assert [vars(worth) for worth in decision_worths(first.trials)] == [
        {
            "sketch": 0,
            "decision": "choice",
            "groups": 1,
            "trials": 2,
            "median_ratio": pytest.approx(2.0),
            "largest_ratio": pytest.approx(2.0),
        },
        {
            "sketch": 0,
            "decision": "tile of a loop",
            "groups": 1,
            "trials": 2,
            "median_ratio": pytest.approx(1.5),
            "largest_ratio": pytest.approx(1.5),
        },
    ]
    assert decision_worths(second.trials) == []


def test_worth_of_many_sets_and_of_other_sketches():
    def trial(secs, a, b, sketch=0):
        return Trial(secs, sketch, (("a", a), ("b", b)), 0)

    trials = [trial(1.0, "1", "1"), trial(3.0, "2", "1"), trial(9.0, "3", "1")]
    trials += [trial(2.0, "1", "2"), trial(4.0, "2", "2"), trial(1.0, "9", "1", sketch=1)]
    worths = {worth.decision: worth for worth in decision_worths(trials)}
    # a: {1, 3, 9} and {2, 4}; b: {1, 2} and {3, 4}; the 9 and the other sketch stand alone.
    a, b = worths["a"], worths["b"]
    assert (a.groups, a.trials, a.median_ratio, a.largest_ratio) == (2, 5, 5.5, 9.0)
    assert (b.groups, b.trials) == (2, 4)
    assert (b.median_ratio, b.largest_ratio) == (pytest.approx((2 + 4 / 3) / 2), 2.0)


class Page(HTMLParser):
    """The texts that a browser would show and the addresses that it would ask for."""

    def __init__(self):
        super().__init__()
        self.asked, self.best, self.text, self._kernel, self._is_best = [], {}, [], None, False

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.asked += [attrs[name] for name in ("src", "href", "xlink:href") if attrs.get(name)]
        self._kernel = attrs.get("data-kernel", self._kernel)
        self._is_best = "best" in attrs.get("class", "").split()

    def handle_data(self, data):
        self.text.append(data)
        if self._is_best:
            self.best[int(self._kernel)], self._is_best = data, False


def test_page_shows_the_numbers_and_asks_for_nothing(run, tmp_path):
    numbers = json.loads(write_report(run, tmp_path / "page.html").read_text())
    assert (numbers["trials"], numbers["failures"]) == (6, 2)
    first, second = numbers["tasks"]
    assert (first["best_us"], first["first_us"], first["last_gain"]) == (2000, 4000, 3)
    assert first["arguments"] == ["A: 8x8 float32", "B: 8x8 float32", "C: 8x8 float32"]
    assert first["best_so_far_us"] == [4000, 4000, 2000, 2000, 2000]
    assert second["worths"] == []
    page = Page()
    text = (tmp_path / "page.html").read_text()
    page.feed(text)
    assert page.best == {0: "2000", 1: "2"}
    assert all(link.startswith(("#", "data:,")) for link in page.asked)
    assert not re.search(r"url\(\s*['\"]?(?!#)", text) and "<script" not in text
    assert text.count("<svg") == 2


EVENTS = [
    {"started": 1, "secs": 3, "trials": 2, "phase": "explore", "failures": {"run": 1}},
    {"started": 2, "secs": 1, "trials": 8, "phase": "explore", "failures": {}},
    {"started": 2, "secs": 2, "trials": 9, "phase": "descend", "failures": {"run": 2, "build": 1}},
]


def test_events_of_several_runs_are_added(tmp_path):
    assert read_events(tmp_path) is None
    rows = [event | {"messages": {kind: "x" for kind in event["failures"]}} for event in EVENTS]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "progress.jsonl").write_text(text + '{"started": 2, "se')
    events = read_events(tmp_path)
    assert events.failures == {"run": 3, "build": 1}
    assert (events.descends_after, events.secs) == ([8], 5.0)
    assert events.messages == {"run": "x", "build": "x"}


def test_page_of_a_kernel_that_was_tuned_here(tuned, tmp_path):
    numbers = json.loads(write_report(tuned.work_dir, tmp_path / "page.html").read_text())
    (task,) = numbers["tasks"]
    assert numbers["result"]["schedule"] == tuned.trace
    assert numbers["result"]["microseconds"]["median"] == pytest.approx(1e6 * tuned.time.secs)
    assert task["gflops"] == pytest.approx(2 * 32**3 / task["best_us"] / 1e3)
    assert task["share_of_peak"] == pytest.approx(task["gflops"] / tuned.peak_gflops)
    assert 0 < task["share_of_peak"] < 1.5
    page = (tmp_path / "page.html").read_text()
    assert numbers["machine"]["cpu"] in page and page.count("def apply_trace") == 2


def test_numbers_at_the_axis_do_not_cover_each_other():
    assert apart(57.7, 526.0, 62.1) == [57.7, 526.0]
    assert apart(10.0, 1000.0, 100.0) == [10.0, 100.0, 1000.0]
    assert apart(5.0, 5.0, 5.0) == [5.0]


def test_decisions_are_named_after_what_they_decide():
    """A real trace of a convolution, cut short."""
    instructions = [
        ["GetSBlock", [], ["pad_temp", "main"], ["b0"]],
        ["GetSBlock", [], ["conv2d", "main"], ["b1"]],
        ["GetLoops", ["b1"], [], ["l2", "l3"]],
        ["SamplePerfectTile", ["l2"], [2, 64], ["v4", "v5"]],
        ["Split", ["l2", "v4", "v5"], [1, 0], ["l6", "l7"]],
        ["SamplePerfectTile", ["l3"], [2, 64], ["v8", "v9"]],
        ["SamplePerfectTile", ["l3"], [2, 64], ["v10", "v11"]],
        ["CacheWrite", ["b1"], [0, "global"], ["b12"]],
        ["SampleComputeLocation", ["b12"], [], ["l13"]],
        ["GetLoops", ["b0"], [], ["l14", "l15"]],
        ["Fuse", ["l14", "l15"], [1], ["l16"]],
        ["SamplePerfectTile", ["l16"], [2, 64], ["v17", "v18"]],
        ["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v19"]],
        ["Annotate", ["b1", "v19"], ["meta_schedule.unroll_explicit"], []],
    ]
    assert decision_names(instructions) == {
        3: "tile of conv2d, loop 0",
        5: "tile of conv2d, loop 1 (instruction 5)",
        6: "tile of conv2d, loop 1 (instruction 6)",
        8: "place of conv2d",
        11: "tile of pad_temp, fused loops",
        12: "unrolling",
    }


def test_a_schedule_that_cannot_be_read_says_so(run):
    numbers = json.loads(write_report(run, run / "page.html").read_text())
    assert numbers["tasks"][0]["schedule"].startswith("# This version of TVM cannot read it: ")


def test_the_numbers_do_not_take_the_place_of_the_page(run, capsys):
    assert main(["report", str(run), "--out", str(run / "page.json")]) == 1
    assert "page.json': the numbers would take its place; expected .html" in capsys.readouterr().err
    assert main(["report", str(run), "--out", "/proc/no/page.html"]) == 1
    assert "droplet-ms report: error: " in capsys.readouterr().err


def test_values_are_escaped(run):
    rows = [record(0, [1e-3], "<script>alert(1)</script>", 0)]
    (run / RECORDS).write_text(json.dumps(rows[0]) + "\n")
    write_report(run, run / "page.html")
    assert "<script>" not in (run / "page.html").read_text()


def page_of_many(tuned, folder, tasks):
    """The size of the page of tasks of 50 trials, and the seconds that making it took."""
    work_dir = multiply(tuned.work_dir, folder / "many", tasks, trials=50)
    start = time.process_time()
    write_report(work_dir, folder / "page.html")
    return (folder / "page.html").stat().st_size, time.process_time() - start


def test_page_of_a_tenth_of_a_large_run_is_small(tuned, tmp_path):
    size, _ = page_of_many(tuned, tmp_path, 20)
    assert 50_000 < size < (3 << 20) / 10


@pytest.mark.slow
def test_large_run_is_quick_and_small(tuned, tmp_path):
    size, secs = page_of_many(tuned, tmp_path, 200)
    print(f"{size} bytes, {secs:.1f} s")
    assert size < 3 << 20 and secs < 20


def test_nothing_to_report(tmp_path, run, capsys):
    with pytest.raises(ReportError, match=r"there is no directory '.*absent'"):
        write_report(tmp_path / "absent", tmp_path / "page.html")
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ReportError, match="has no records: expected the directory of a run"):
        write_report(other, tmp_path / "page.html")
    (other / "database_workload.json").write_text("[]\n")
    with pytest.raises(ReportError, match="measured no schedule"):
        write_report(other, tmp_path / "page.html")
    with (run / RECORDS).open("a") as file:
        file.write("[0, \n")
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 1
    assert "line 7 of" in capsys.readouterr().err


def test_a_run_that_was_stopped_before_its_first_trial(tmp_path, capsys):
    target = Target({"kind": "llvm", "num-cores": 1})
    directory = open_work_dir(tmp_path / "tuned", target, 1)
    assert "measured no schedule" in why_no_page(directory, capsys)
    commanded = tmp_path / "commanded"
    commanded.mkdir()
    run_kept(commanded, {}, lambda: 1)
    assert "measured no schedule" in why_no_page(commanded, capsys)


def test_a_page_follows_a_run(run, monkeypatch, capsys):
    """It reloads itself while the run goes on; a line that is half written waits for its end."""
    page, numbers = run / "page.html", run / "page.json"
    (run / RECORDS).unlink()
    seen = []

    def look(seconds):
        seen.append(json.loads(numbers.read_text())["trials"] if numbers.exists() else None)
        if len(seen) == 1:
            write_records(run, ROWS[:2])
        elif len(seen) == 2:
            assert 'http-equiv="refresh"' in page.read_text()
            write_records(run, ROWS)
            (run / RECORDS).write_text((run / RECORDS).read_text()[:-20])
        elif len(seen) == 3:
            write_records(run, ROWS)
        elif len(seen) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(following, "time", SimpleNamespace(sleep=look))
    monkeypatch.setattr(following.os, "nice", lambda by: 0)
    assert main(["report", str(run), "--follow", "--out", str(page)]) == 0
    assert seen[:2] == [None, 2] and seen[3] == len(ROWS)
    assert "refresh" not in page.read_text()
    assert json.loads(numbers.read_text())["trials"] == len(ROWS)
    assert "waiting: " in capsys.readouterr().err


def why_no_page(run, capsys):
    """What the command says of a run that it makes no page of."""
    assert main(["report", str(run), "--out", str(run / "page.html")]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("droplet-ms report: error: ") and printed.count("\n") == 1
    return printed


@pytest.mark.parametrize("line", ["[", "\xff", "[]", "7", '["1", "bm90aGluZw=="]', '[1, {"a": 2}]'])
def test_a_damaged_workload_is_named(run, capsys, line):
    first, _ = (run / "database_workload.json").read_text().splitlines()
    text = f"{first}\n{line}\n"
    (run / "database_workload.json").write_text(text, encoding="latin-1")
    assert f"line 2 of {run / 'database_workload.json'} is damaged: " in why_no_page(run, capsys)


@pytest.mark.parametrize("workload", [2, -1, None, "x", [0]])
def test_a_record_of_no_workload_is_named(run, capsys, workload):
    write_records(run, [*ROWS, record(workload, [1e-3], [4, 2], 0)])
    assert f"line 7 of {run / RECORDS} is damaged: " in why_no_page(run, capsys)
    (run / "database_workload.json").unlink()
    assert f"of {run / RECORDS} is damaged: " in why_no_page(run, capsys)


@pytest.mark.parametrize("kind", [1, None, {}])
def test_a_record_of_no_instructions_is_named(run, capsys, kind):
    write_records(run, [*ROWS, record(0, [1e-3], [4, 2], 0, kinds=(kind, "SampleCategorical"))])
    assert f"line 7 of {run / RECORDS} is damaged: " in why_no_page(run, capsys)


@pytest.mark.parametrize(
    "name", ["settings.json", "machine.json", "result.json", "model.json", "schedules.json"]
)
@pytest.mark.parametrize("text", ["{", "\xff", "7", "[1]", '["a"]', '{"a": 1'])
def test_a_damaged_file_beside_the_records_is_named(run, capsys, name, text):
    (run / name).write_text(text, encoding="latin-1")
    assert f"{run / name} is damaged: " in why_no_page(run, capsys)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("machine.json", '{"cpu": "a"}'),
        ("result.json", '{"trials": 1}'),
        ("result.json", '{"trials": 1, "known_trials": null}'),
        ("result.json", '{"trials": 1, "known_trials": 1, "microseconds": {"median": "a"}}'),
    ],
)
def test_a_file_of_another_form_is_told(run, capsys, name, text):
    (run / name).write_text(text)
    told = why_no_page(run, capsys)
    assert name in told and "lacks what a run writes" in told


def test_scalars_and_symbolic_extents_are_arguments(tmp_path):
    @tirx.prim_func(s_tir=True)
    def scaled(x: tirx.handle, s: tirx.float32, y: tirx.Buffer((4,), "float32")):
        n = tirx.int32()
        data = tirx.match_buffer(x, (n,), "float32")
        for i in range(4):
            with tirx.sblock("b"):
                j = tirx.axis.spatial(4, i)
                y[j] = data[j] * s

    mod = IRModule({"main": scaled})
    database = JSONDatabase(work_dir=str(tmp_path))
    workload = database.commit_workload(mod)
    target = Target({"kind": "llvm", "num-cores": 1})
    trace = Schedule(mod).trace
    database.commit_tuning_record(TuningRecord(trace, workload, [1e-3], target, []))
    (task,) = json.loads(write_report(tmp_path, tmp_path / "page.html").read_text())["tasks"]
    assert task["arguments"][1:] == ["s: float32", "y: 4 float32"]
    assert task["arguments"][0].endswith(": n float32")


def test_each_target_is_a_kernel_of_its_own(run, tmp_path):
    rows = [record(0, [4e-3], [4, 2], 0), record(0, [1e-3], [2, 4], 0), ROWS[2]]
    rows[0][1][2] = {"kind": "llvm", "num-cores": 2, "mcpu": "skylake-avx512"}
    rows[1][1][2] = {"mcpu": "cortex-a72", "num-cores": 2, "kind": "llvm"}
    rows[2][1][2] = None
    # The order of a target's attributes does not matter.
    rows.append(record(0, [8e-3], [4, 2], 1))
    rows[3][1][2] = dict(reversed(rows[0][1][2].items()))
    write_records(run, rows)
    tasks = json.loads(write_report(run, tmp_path / "page.html").read_text())["tasks"]
    assert [(task["workload"], task["target"], task["best_so_far_us"]) for task in tasks] == [
        (0, "llvm mcpu skylake-avx512 num-cores 2", [4000, 4000]),
        (0, "llvm mcpu cortex-a72 num-cores 2", [1000]),
        (1, "no target", [pytest.approx(2)]),
    ]
    text = (tmp_path / "page.html").read_text()
    assert "kernel 0 on llvm mcpu cortex-a72 num-cores 2<" in text
    ids = re.findall(r'<details class="kernel" id="([^"]*)"', text)
    assert len(set(ids)) == 3


def test_targets_are_named_by_what_others_have_not(run):
    rows = [record(0, [4e-3], [4, 2], 0), record(0, [1e-3], [2, 4], 0)]
    for row, cores in zip(rows, (2, 4), strict=True):
        row[1][2] = {"kind": "llvm", "num-cores": cores, "mcpu": "skylake-avx512"}
    write_records(run, rows)
    names = target_names(read_history(run))
    assert list(names.values()) == ["llvm num-cores 2", "llvm num-cores 4"]
    write_records(run, rows[:1])
    assert list(target_names(read_history(run)).values()) == [""]


def test_what_the_machine_let_down_is_no_trial(run, tmp_path):
    write_records(run, [record(0, [], [4, 4], 0), *ROWS])
    first, _ = read_history(run)
    assert (len(first.trials), first.failures, first.best.line) == (5, 2, 4)
    write_records(run, [record(0, [], [4, 4], 0)])
    with pytest.raises(ReportError, match="measured no schedule"):
        write_report(run, tmp_path / "page.html")


def test_from_the_shell(run, tmp_path, capsys):
    assert main(["report", str(run), "--out", str(tmp_path / "page.html")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'page.html'}, {tmp_path / 'page.json'}\n"
    assert main(["report", str(run), "--out", str(tmp_path / "page.html"), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert json.loads(Path(written["numbers"]).read_text())["tasks"]
    assert Path(written["page"]) == tmp_path / "page.html"


def test_the_page_lies_beside_the_run(run, tmp_path, capsys, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}, {run / 'report.json'}\n"
    assert (run / "report.html").exists()
    assert not list(here.iterdir())


def of_space(loop, extent, tile, secs):
    """A record of a space that tiles a loop and runs an extent in parallel."""
    insts = [
        ["GetSBlock", [], ["C", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2"]],
        ["Annotate", ["b0", extent], ["meta_schedule.parallel"], []],
        ["SamplePerfectTile", [loop], [2, 64], ["v3", "v4"]],
    ]
    return [0, [[insts, [[3, tile]]], [secs], {"kind": "llvm"}, []]]


def test_spaces_that_differ_in_their_loops_only_are_two(run):
    write_records(run, [of_space("l1", 16, [4, 2], 1e-3), of_space("l2", 16, [2, 4], 2e-3)])
    (history,) = read_history(run)
    assert [trial.sketch for trial in history.trials] == [0, 1]
    assert decision_worths(history.trials) == []


def test_the_parallel_extent_is_a_decision(run):
    """``MutateParallel`` and a descent change it: trials that differ in it do not differ in a tile
    alone."""
    rows = [of_space("l1", 16, [4, 2], 1e-3), of_space("l1", 64, [4, 2], 3e-3)]
    write_records(run, [*rows, of_space("l1", 16, [2, 4], 2e-3)])
    (history,) = read_history(run)
    assert [trial.sketch for trial in history.trials] == [0, 0, 0]
    assert history.trials[1].decisions == (
        ("tile of C, loop 0", "[4, 2]"),
        ("parallel loops", "64"),
    )
    worths = {worth.decision: worth.largest_ratio for worth in decision_worths(history.trials)}
    assert worths == {"parallel loops": pytest.approx(3.0), "tile of C, loop 0": pytest.approx(2.0)}

# SPDX-License-Identifier: Apache-2.0
"""The page of a model, from events that are written here."""

import json
import re

import pytest
from made_up_runs import event, write_course, write_model, write_rates

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import JSONDatabase
from tvm.tirx import const
from tvm_droplet_ms.cli.report.models import read_models
from tvm_droplet_ms.cli.report.page import bars, write_report
from tvm_droplet_ms.session.records import RECORDS, WORKLOADS


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "model")


def numbers_of(work_dir):
    return json.loads(write_report(work_dir, work_dir / "page.html").read_text())


def test_shares_and_gains_of_the_kernels(model):
    numbers = numbers_of(model)
    assert numbers["model"] == "net.onnx"
    (times,) = numbers["models"]
    assert (times["before_ms"], times["ms"]) == (1.5, 1.0)
    assert (times["reference"], times["why_ended"]) == ("ONNX Runtime", "time")
    rows = [
        (row["shape"], row["us"], row["before_us"], row["share"], row["task"])
        for row in times["kernels"]
    ]
    # 600, 300 and 100 of 1,000 us. The last kernel is of no workload in the directory.
    assert rows == [
        ("16x8 * 8x8", pytest.approx(600), pytest.approx(900), pytest.approx(0.6), 1),
        ("8x8 * 8x8", pytest.approx(300), pytest.approx(250), pytest.approx(0.3), 0),
        ("", pytest.approx(100), None, pytest.approx(0.1), None),
    ]
    assert [row["schedule"] for row in times["kernels"]] == ["# of 16", "# of T.int64(8)", None]
    assert numbers["others"] == []


def test_a_kernel_that_got_slower_is_marked(model):
    """300 us after 250 are 20% more, 600 after 900 are less, and 927 after 900 are noise."""
    (times,) = numbers_of(model)["models"]
    assert [row["is_slower"] for row in times["kernels"]] == [False, True, False]
    text = (model / "page.html").read_text()
    assert text.count("slower than in the first executable") == 1
    large = json.loads((model / WORKLOADS).read_text().splitlines()[1])[0]
    with (model / "progress.jsonl").open("a") as file:
        file.write(json.dumps(event("result", 1.0, [("b", large, 927e-6, 0.2)])) + "\n")
    (times,) = numbers_of(model)["models"]
    assert [row["is_slower"] for row in times["kernels"]] == [False]


def test_the_times_are_explained(model):
    numbers_of(model)
    text = re.sub("<[^>]*>", "", (model / "page.html").read_text())
    assert "1 ms (quartiles: 0.9 to 1.1), was 1.5 ms (quartiles: 1.35 to 1.65)" in text
    assert "In turns: timed later" in text


def test_a_row_names_the_layers_of_its_kernel(model):
    events = (model / "progress.jsonl").read_text()
    (model / "progress.jsonl").write_text(events.replace('"b"', '"fused_matmul1_relu2"'))
    (times,) = numbers_of(model)["models"]
    assert [row["layer"] for row in times["kernels"]] == ["matmul + relu", "", ""]
    text = re.sub("<[^>]*>", "", (model / "page.html").read_text())
    assert "The slowest kernel, matmul + relu, takes 60%" in text


def test_bars_are_in_percent_of_the_longest():
    rows = [
        {"us": 600.0, "before_us": 800.0, "roofline_share": 0.5},
        {"us": 400.0, "before_us": 200.0, "roofline_share": 1.5},
        {"us": None},
    ]
    assert bars(rows) == [(37.5, 37.5, 25.0), (50.0, 0.0, 0.0), (0.0, 0.0, 0.0)]
    assert bars([]) == []


def test_the_first_executable_of_all_runs_and_the_last_result(model):
    with (model / "progress.jsonl").open("a") as file:
        for each in (event("first", 0.9), event("result", 0.8), '["torn', '{"event": "result"}'):
            file.write((each if isinstance(each, str) else json.dumps(each)) + "\n")
    (times,) = read_models(model)
    assert (times.before_ms, times.ms) == (1.5, 0.8)
    assert times.beside_ms == {"tuned": 1.0, "ONNX Runtime": 2.0}


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.5, "3.00 times as fast"),
        (1.4, "the difference is within the noise of the machine"),
        (2.0, "0.75 times as fast"),
    ],
)
def test_a_gain_is_told_if_the_quartiles_are_apart(model, ms, text):
    """Before: 1.5 ms, 1.35 to 1.65."""
    with (model / "progress.jsonl").open("a") as file:
        file.write(json.dumps(event("result", ms)) + "\n")
    (times,) = numbers_of(model)["models"]
    assert times["before_quartiles"] == pytest.approx([1.35, 1.65])
    assert f"before any measurement: {text}." in re.sub(
        "<[^>]*>", "", (model / "page.html").read_text()
    )


def test_each_shape_has_its_times(model):
    with (model / "progress.jsonl").open("a") as file:
        file.write(json.dumps(event("first", 3.0) | {"shapes": {"x": [2, 8]}}) + "\n")
    assert [(one.shapes, one.before_ms, one.ms) for one in read_models(model)] == [
        ({"x": [1, 8]}, 1.5, 1.0),
        ({"x": [2, 8]}, 3.0, None),
    ]
    numbers_of(model)
    text = (model / "page.html").read_text()
    assert "x 2x8" in text and "No run came to its end" in text


def test_a_run_that_was_killed_shows_its_first_executable(model):
    lines = (model / "progress.jsonl").read_text().splitlines()
    (model / "progress.jsonl").write_text(lines[0] + "\n")
    (times,) = numbers_of(model)["models"]
    assert (times["before_ms"], times["ms"]) == (1.5, None)
    assert [row["us"] for row in times["kernels"]] == pytest.approx([900, 250])
    assert all(row["before_us"] is None for row in times["kernels"])
    # The best trials are all there is of schedules.
    assert all("def apply_trace" in row["schedule"] for row in times["kernels"])
    assert "The best trial, as Python" in (model / "page.html").read_text()


def test_a_run_without_trials_has_a_page(model):
    """As ``--trials 0`` leaves it: an executable, its kernels, and their picks."""
    for name in (RECORDS, WORKLOADS):
        (model / name).write_text("")
    numbers = numbers_of(model)
    (times,) = numbers["models"]
    assert (numbers["trials"], numbers["tasks"]) == (0, [])
    assert (times["before_ms"], times["ms"]) == (None, 1.0)
    assert [row["name"] for row in times["kernels"]] == ["b", "a", "c"]
    assert [row["schedule"] for row in times["kernels"]] == ["# of 16", "# of T.int64(8)", None]
    text = " ".join(re.sub("<[^>]*>", " ", (model / "page.html").read_text()).split())
    assert "The slowest kernel, b , takes 60% of the time" in text
    assert "before any measurement" not in text and "T.int64" not in text
    assert "gained since the first executable" not in text


def test_the_kernels_are_below_the_roofline(model):
    """A product of 16x8 and 8x8 has 2 * 16 * 8 * 8 operations and 4 * (128 + 64 + 128) bytes."""
    numbers_of(model)
    assert 'class="roofline"' not in (model / "page.html").read_text()
    write_rates(model)
    (times,) = numbers_of(model)["models"]
    rates = [(row["flop_per_byte"], row["executed_gflops"]) for row in times["kernels"]]
    # 2,048 operations of 1,280 bytes in 600 us; 1,024 of 768 bytes in 300 us; unknown.
    assert rates == [
        (pytest.approx(1.6), pytest.approx(2048 / 600e-6 / 1e9)),
        (pytest.approx(1024 / 768), pytest.approx(1024 / 300e-6 / 1e9)),
        (None, None),
    ]
    text = (model / "page.html").read_text()
    assert re.findall("<title>(.*?)</title>", text)[1:] == [
        "16x8 * 8x8: 1.6 FLOP per byte, 0.003413 GFLOP/s",
        "8x8 * 8x8: 1.33 FLOP per byte, 0.003413 GFLOP/s",
    ]
    assert "10 GB/s times the operations" in text and "100 GFLOP/s, where" in text
    assert "Left out: 1 kernel whose operations cannot be counted.</figcaption>" in text


def test_the_roofline_tells_how_many_kernels_only_move_data(model):
    write_rates(model)
    n, m = const(16, "int64"), const(8, "int64")
    a = te.placeholder([n, m], name="A")
    b = te.compute([m, n], lambda i, j: a[j, i], name="B")
    database = JSONDatabase(work_dir=str(model))
    database.commit_workload(IRModule({"main": te.create_prim_func([a, b])}))
    moving = json.loads((model / WORKLOADS).read_text().splitlines()[-1])[0]
    large = json.loads((model / WORKLOADS).read_text().splitlines()[1])[0]
    kernels = [("b", large, 600e-6, 0.2), *((name, moving, 1e-4, 0.1) for name in ("c", "d"))]
    with (model / "progress.jsonl").open("a") as file:
        file.write(json.dumps(event("result", 1.0, kernels)) + "\n")
    (times,) = numbers_of(model)["models"]
    assert [row["flop_per_byte"] for row in times["kernels"]] == [pytest.approx(1.6), 0.0, 0.0]
    text = (model / "page.html").read_text()
    assert "Left out: 2 kernels without arithmetic.</figcaption>" in text


@pytest.mark.parametrize(("deviation", "shown"), [(0.0, "0"), (1.5e-6, "1.5e-06")])
def test_the_deviation_of_the_outputs(model, deviation, shown):
    with (model / "progress.jsonl").open("a") as file:
        file.write(json.dumps(event("result", 1.0) | {"deviation": deviation}) + "\n")
    numbers_of(model)
    text = (model / "page.html").read_text()
    assert f"The outputs deviate by {shown} from those of ONNX Runtime, relative" in text


def test_the_latency_falls_with_the_gains_of_the_kernels(model):
    """Two calls took 1,000 us; at 450 us each they gain 100 us, at 300 us 400 us, of 2 ms.

    Slower times, other kernels and failures change nothing. The second run begins after the 9
    seconds of the first, and its executable is not the first.
    """
    (times,) = read_models(write_course(model))
    assert times.course.estimates == [
        (3.0, 2.0),
        (5.0, pytest.approx(1.9)),
        (9.0, pytest.approx(1.9)),
        (13.0, pytest.approx(1.6)),
    ]
    assert times.course.measured == [(15.0, 1.5)]
    (numbers,) = numbers_of(model)["models"]
    assert numbers["course"]["measured"] == [[15.0, 1.5]]
    assert "Latency during the run" in (model / "page.html").read_text()


def test_a_model_of_several_shapes_has_no_course(model):
    text = (write_course(model) / "progress.jsonl").read_text()
    other = json.loads(text.splitlines()[0]) | {"shapes": {"x": [2, 8]}}
    (model / "progress.jsonl").write_text(text + json.dumps(other) + "\n")
    assert [one.course for one in read_models(model)] == [None, None]
    numbers_of(model)
    assert "Latency during the run" not in (model / "page.html").read_text()

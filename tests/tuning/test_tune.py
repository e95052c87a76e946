# SPDX-License-Identifier: Apache-2.0
"""One call from a model to a tuned, checked executable."""

import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from small_network import expected_output, small_image, small_model
from tvm_ffi import structural_hash

import tvm
from tvm import relax
from tvm.s_tir.meta_schedule.database import JSONDatabase
from tvm_droplet_ms.cli.report.page import write_report
from tvm_droplet_ms.runtime import InferenceSession
from tvm_droplet_ms.session.errors import TooLateError
from tvm_droplet_ms.tuning import ModelError, kernel_tuner, tune
from tvm_droplet_ms.tuning.agreement import Agreement
from tvm_droplet_ms.tuning.budget.ending import timed_runs
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel
from tvm_droplet_ms.tuning.kernel_tuner import KernelTuner
from tvm_droplet_ms.tuning.picks.picks import PickFile, restore, task_key
from tvm_droplet_ms.tuning.summary import summary


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def image():
    return small_image()


@pytest.fixture(scope="module")
def expected(model, image):
    return expected_output(model[1], image)


@pytest.fixture(scope="module")
def tuned(model, tmp_path_factory):
    """The network after 8 trials, and the lines of progress."""
    lines = []
    work_dir = tmp_path_factory.mktemp("work")
    result = tune(model, trials=8, time_budget_s=600, work_dir=work_dir, progress=lines.append)
    assert lines
    return result


class TestTune:
    def test_the_result_computes_what_the_model_does(self, tuned, image, expected):
        np.testing.assert_allclose(tuned(image), expected, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(tuned(image=image), expected, rtol=1e-4, atol=1e-4)

    def test_every_kernel_has_a_schedule_and_its_trials_are_counted(self, tuned):
        # A kernel may be the fastest without a schedule.
        assert {row.schedule for row in tuned.kernels} <= {"measured", "predicted", "untouched"}
        assert sum(row.trials for row in tuned.kernels) == tuned.trials > 0
        assert all(row.secs > 0 for row in tuned.kernels)

    def test_the_summary_names_every_kernel(self, tuned):
        text = summary(tuned)
        assert all(row.name in text for row in tuned.kernels)
        assert "1 thread(s)" in text and "untouched model" in text

    def test_printed_it_is_one_line(self, tuned):
        shown = repr(tuned)
        assert shown.startswith(f"TuneResult({tuned.latency}, {tuned.trials} trials, deviation ")
        assert len(shown) < 300

    def test_the_directory_and_an_export_hold_the_executable(
        self, tuned, image, expected, tmp_path
    ):
        tuned.export(tmp_path / "network.so")
        assert [path.name for path in tmp_path.iterdir()] == ["network.so"]
        for path in (tuned.work_dir / "model.so", tmp_path / "network.so"):
            machine = relax.VirtualMachine(tvm.runtime.load_module(str(path)), tvm.cpu())
            output = machine["main"](tvm.runtime.tensor(image)).numpy()
            np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-4)

    def test_the_run_is_followed(self, tuned):
        path = tuned.work_dir / "progress.jsonl"
        first, *events, result = [json.loads(line) for line in path.read_text().splitlines()]
        last = {event["task"]: event["trials"] for event in events}
        assert {row.name: row.trials for row in tuned.kernels if row.trials} == last
        content = json.loads(tuned.as_json())
        assert (content["trials"], content["why_ended"]) == (tuned.trials, "trials")
        assert [row["name"] for row in content["kernels"]] == [row.name for row in tuned.kernels]
        assert content["failures"] == events[-1]["failures"]
        assert {event["event"] for event in events} == {"batch"}
        # The latencies before and after, and the kernels of either, are events too.
        assert {name: result[name] for name in content} == content
        assert (first["event"], result["event"]) == ("first", "result")
        assert first["shapes"] == result["shapes"] == {"image": [1, 3, 12, 12]}
        assert first["milliseconds"]["median"] > 0 and first["kernels"]
        mods = JSONDatabase(work_dir=str(tuned.work_dir)).get_all_tuning_records()
        keys = {str(structural_hash(record.workload.mod)) for record in mods}
        assert {row.workload for row in tuned.kernels if row.trials} == keys
        schedules = json.loads((tuned.work_dir / "schedules.json").read_text())
        assert schedules == dict(tuned.schedules)
        machine = json.loads((tuned.work_dir / "machine.json").read_text())
        assert machine["threads"] == 1 and machine["peak_gflops"] > 0
        assert machine["memory_gbytes_per_sec"] > 0

    def test_its_page_shows_where_the_time_goes(self, tuned, tmp_path):
        numbers = json.loads(write_report(tuned.work_dir, tmp_path / "page.html").read_text())
        (model,) = numbers["models"]
        assert model["ms"] == pytest.approx(1e3 * tuned.latency.median)
        rows = {row["name"]: row for row in model["kernels"]}
        assert list(rows) == [row.name for row in tuned.kernels]
        assert sum(row["share"] for row in rows.values()) == pytest.approx(1.0)
        assert {name: row["schedule"] for name, row in rows.items() if row["schedule"]} == dict(
            tuned.schedules
        )
        assert "1x12x12x3 * 3x3x3x8" in {row["shape"] for row in rows.values()}
        assert "T.int64" not in (tmp_path / "page.html").read_text()

    def test_schedules_replay_as_python(self, tuned):
        records = JSONDatabase(work_dir=str(tuned.work_dir)).get_all_tuning_records()
        # A first pick without trials is in the file of picks alone.
        measured = [row.name for row in tuned.kernels if row.schedule == "measured" and row.trials]
        assert measured
        texts = {str(record.trace) for record in records}
        # A first pick that no trial was faster than.
        stored = PickFile(tuned.work_dir).read()
        mods = {structural_hash(record.workload.mod): record.workload.mod for record in records}
        for mod in mods.values():
            pick = restore(mod, stored.get(task_key(mod, tuned.target)), has_model=True)
            texts |= {str(pick.trace)} if pick is not None and pick.secs else set()
        assert all(tuned.schedule(name) in texts for name in measured)
        with pytest.raises(ModelError, match="'none' is no scheduled kernel: expected one of"):
            tuned.schedule("none")

    def test_a_reference_that_fails_at_its_fastest_is_said_in_words(self, tuned):
        """As where optimizations make an operator that ONNX Runtime lacks; the result stays."""

        def fails(_inputs):
            raise RuntimeError("no such operator")

        reference = replace(tuned.check.reference, fastest=fails)
        other = replace(tuned, check=replace(tuned.check, reference=reference))
        with pytest.raises(ModelError, match="cannot run the model .*no such operator"):
            other.beside_reference()

    def test_loading_the_executable_prints_nothing(self, tuned):
        program = "import sys, tvm; tvm.runtime.load_module(sys.argv[1])"
        command = [sys.executable, "-c", program, str(tuned.work_dir / "model.so")]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        assert ended.stdout + ended.stderr == ""

    def test_no_trials_apply_what_the_directory_knows(self, tuned, model, image, expected):
        again = tune(model, trials=0, work_dir=tuned.work_dir)
        assert (again.trials, again.why_ended) == (0, "trials")
        origin = {row.name: (row.schedule, row.trials) for row in tuned.kernels}
        assert {row.name: (row.schedule, row.trials) for row in again.kernels} == origin
        np.testing.assert_allclose(again(image), expected, rtol=1e-4, atol=1e-4)

    def test_the_exported_library_is_a_session(self, tuned, image, expected, tmp_path):
        tuned.export(tmp_path / "model.so")
        session = InferenceSession(tmp_path / "model.so")
        (given,), (result,) = session.get_inputs(), session.get_outputs()
        assert (given.name, given.type, given.shape) == (
            "image",
            "tensor(float)",
            list(image.shape),
        )
        (found,) = session.run(None, {"image": image})
        assert list(found.shape) == result.shape
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        assert session.info.threads == 1 and "llvm" in session.info.target

    def test_inputs_are_checked(self, tuned, image):
        with pytest.raises(ModelError, match=r"shapes image \(1, 3, 12\): .* image \(1, 3, 12"):
            tuned(image[:, :, :, 0])
        with pytest.raises(ModelError, match="expected image"):
            tuned()
        with pytest.raises(ModelError, match="expected image"):
            tuned(picture=image)


def test_time_that_is_too_short_for_schedules_gives_the_model_as_it_is(
    model, image, expected, tmp_path, monkeypatch
):
    monkeypatch.setattr(kernel_tuner, "GRACE_SECS", 300.0)
    result = tune(model, time_budget_s=0.1, work_dir=tmp_path)
    np.testing.assert_allclose(result(image), expected, rtol=1e-4, atol=1e-4)
    assert {row.schedule for row in result.kernels} == {"untouched"}
    # On a busy machine the compiler may have been late too, which is a note of its own.
    unpicked, *_, late = result.notes
    assert result.why_ended == "time" and "too short to pick one" in unpicked
    wanted = r"the model was compiled and checked \d+\.\d s after .* a larger time_budget_s"
    assert re.match(wanted, late)


def test_time_that_is_too_short_for_any_executable_is_said(model, tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_tuner, "GRACE_SECS", -300.0)
    with pytest.raises(ModelError, match="the time is too short: .* pass a larger time_budget_s"):
        tune(model, time_budget_s=0.1, work_dir=tmp_path)
    (tmp_path / "model.so").write_bytes(b"before")
    with pytest.raises(ModelError, match=r"model\.so', which an earlier run wrote, is kept"):
        tune(model, time_budget_s=0.1, work_dir=tmp_path)
    assert (tmp_path / "model.so").read_bytes() == b"before"


def test_where_the_last_executable_is_too_late_the_first_one_is_described(
    model, image, expected, tmp_path, monkeypatch
):
    def late(*_):
        raise TooLateError("the time is too short: made up")

    monkeypatch.setattr(Agreement, "last", late)
    monkeypatch.setattr(KernelTuner, "measure_picks", lambda *_: 0)
    result = tune(model, time_budget_s=600, trials=2, work_dir=tmp_path)
    np.testing.assert_allclose(result(image), expected, rtol=1e-4, atol=1e-4)
    assert result.trials == 2 and "made up; what was written before is kept" in result.notes[0]
    assert {row.schedule for row in result.kernels} == {"predicted"}


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"threads": 0}, "threads=0: expected an int from 1 to"),
            ({"threads": 1 << 20}, "threads=1048576: expected an int from 1 to"),
            ({"work_dir": ""}, "work_dir is '': expected a directory"),
            ({"work_dir": 5}, "work_dir is 5: expected a directory"),
            ({"threads": True}, "threads=True: expected an int from 1 to"),
            ({"time_budget_s": None}, "time_budget_s=None: expected a positive number"),
            ({"trials": "3"}, "trials='3': expected None or an int"),
            ({"seed": "a"}, "seed='a': expected an int"),
            ({"tolerance": "a"}, "tolerance='a': expected a positive number"),
            ({"constants": 3}, "constants is 3: expected arrays by the names of inputs"),
            ({"inputs": 5}, "inputs has the entry 5: expected a mapping"),
            ({"time_budget_s": 0}, "time_budget_s=0: expected a positive number"),
            ({"trials": -1}, "trials=-1: expected None or an int of at least 0"),
            ({"patience": 0}, "patience=0: expected None or an int of at least 1"),
            ({"inputs": {"x": 1}}, r"inputs has \['x'\], expected names of \['image'\]"),
            ({"inputs": {"image": 1}}, r"inputs\['image'\] has the shape \(\), expected"),
            ({"tolerance": 0.0}, "tolerance=0.0: expected a positive number"),
            ({"target": "cuda"}, "whole models are tuned for CPUs"),
            ({"prior": "none.model"}, "prior is 'none.model', and there is no such file"),
            ({"known": "none.jsonl"}, "known is 'none.jsonl', and there is no such file"),
            ({"shapes": {"x": (1,)}}, "shapes names the input 'x': the model has image"),
        ],
    )
    def test_is_named_before_anything_is_tuned(self, model, options, message, tmp_path):
        with pytest.raises(ModelError, match=message):
            tune(model, **{"work_dir": tmp_path, **options})
        assert not (tmp_path / "model.so").exists()


class TestWhatIsWritten:
    def test_another_file_than_the_model_is_not_handed_over(self, model, tmp_path, monkeypatch):
        load = CompiledModel.load.__func__

        def load_wrong(cls, library):
            compiled = load(cls, library)
            right = compiled._main
            compiled._main = lambda *tensors: tvm.runtime.tensor(right(*tensors).numpy() + 1)
            return compiled

        monkeypatch.setattr(CompiledModel, "load", classmethod(load_wrong))
        monkeypatch.setattr(KernelTuner, "measure_picks", lambda *_: 0)
        with pytest.raises(RuntimeError, match=r"model\.so differ .* before it was written"):
            tune(model, trials=0, time_budget_s=600, work_dir=tmp_path)

    def test_slow_models_are_timed_in_fewer_runs(self):
        assert [timed_runs(secs) for secs in (0.01, 0.2, 0.25, 5.0)] == [15, 10, 8, 5]
        # Without time left: as many as take 0.3 s, five at most.
        assert [timed_runs(secs, 0.0) for secs in (0.01, 0.12, 5.0)] == [5, 2, 1]

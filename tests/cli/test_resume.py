# SPDX-License-Identifier: Apache-2.0
"""``droplet-ms resume``: the same command with what is left of it."""

import json
import os
import subprocess
import sys
import time

import pytest

from tvm_droplet_ms.cli import main, tune
from tvm_droplet_ms.cli.manifest import FILE, RECORDS, ManifestError, read_manifest, run_kept
from tvm_droplet_ms.session.records import mend_torn_end


class Clock:
    """Counts the seconds that it is told to."""

    def __init__(self):
        self.secs = 100.0

    def __call__(self):
        return self.secs

    def passing(self, secs, status=0):
        """A run that takes so many seconds."""

        def run():
            self.secs += secs
            return status

        return run


def test_a_run_that_ends_has_taken_its_time(tmp_path):
    clock = Clock()
    assert run_kept(tmp_path, {"model": "dense"}, clock.passing(7.0), clock=clock) == 0
    assert read_manifest(tmp_path).spent_secs == 7.0
    # What goes on adds to what was taken, and a new command begins anew.
    assert run_kept(tmp_path, {"model": "dense"}, clock.passing(2.0), 7.0, clock=clock) == 0
    assert read_manifest(tmp_path).spent_secs == 9.0
    run_kept(tmp_path, {"model": "dense"}, clock.passing(2.0), clock=clock)
    assert read_manifest(tmp_path).spent_secs == 2.0
    assert read_manifest(tmp_path).options == {"model": "dense"}


class Killed(Exception):
    """Ends a run in the middle."""


def killed_after(tmp_path, secs):
    """A run whose last record is so many seconds of wall clock after its begin."""

    def run():
        started = json.loads((tmp_path / FILE).read_text())["started"]
        (tmp_path / RECORDS).write_text("")
        os.utime(tmp_path / RECORDS, (started + secs, started + secs))
        raise Killed

    return run


def test_a_killed_run_has_taken_until_its_last_record(tmp_path):
    with pytest.raises(Killed):
        run_kept(tmp_path, {"model": "dense"}, killed_after(tmp_path, 30.0))
    assert read_manifest(tmp_path).spent_secs == pytest.approx(30.0, abs=1e-3)


@pytest.mark.parametrize(("jump", "spent"), [(-3600.0, 0.0), (86400.0, 240.0)])
def test_a_clock_jump_costs_a_killed_run_its_minutes_at_most(tmp_path, jump, spent):
    with pytest.raises(Killed):
        run_kept(tmp_path, {"model": "dense", "minutes": 4.0}, killed_after(tmp_path, jump))
    assert read_manifest(tmp_path).spent_secs == pytest.approx(spent, abs=1e-3)


@pytest.mark.parametrize("jump", [-3600.0, 86400.0])
def test_a_clock_jump_costs_a_run_that_ends_nothing(tmp_path, monkeypatch, jump):
    now = time.time()

    def run():
        monkeypatch.setattr(time, "time", lambda: now + jump)
        return 0

    run_kept(tmp_path, {"model": "dense"}, run)
    assert 0.0 <= read_manifest(tmp_path).spent_secs < 10.0


def test_a_command_that_fails_before_it_measures_takes_no_other_place(tmp_path):
    clock = Clock()
    run_kept(tmp_path, {"model": "dense"}, clock.passing(7.0), clock=clock)
    assert run_kept(tmp_path, {"model": "softmax"}, clock.passing(3.0, status=1), clock=clock) == 1
    manifest = read_manifest(tmp_path)
    assert (manifest.options, manifest.spent_secs) == ({"model": "dense"}, 7.0)

    def measure_and_fail():
        (tmp_path / RECORDS).write_text("a record")
        return 1

    run_kept(tmp_path, {"model": "softmax"}, measure_and_fail, clock=clock)
    assert read_manifest(tmp_path).options == {"model": "softmax"}


def test_what_cannot_be_resumed_ends_in_words(tmp_path, capsys):
    assert main(["resume", str(tmp_path)]) == 1
    assert f"has no {FILE}" in capsys.readouterr().err
    (tmp_path / FILE).write_text("{")
    with pytest.raises(ManifestError, match="is damaged"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"model": 3},
        *({"model": "dense", name: value} for name, value in (("minutes", "many"), ("seed", 0.5))),
        *({"model": "dense", name: value} for name, value in (("minutes", -1), ("threads", 0))),
        [1],
        "dense",
        None,
    ],
)
def test_options_of_another_form_end_in_words(tmp_path, capsys, options):
    content = {"options": options, "spent_secs": 0.0, "started": None}
    (tmp_path / FILE).write_text(json.dumps(content))
    assert main(["resume", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert f"{FILE} is damaged" in captured.err and len(captured.err.splitlines()) == 1


def test_a_directory_in_place_of_the_command_ends_in_words(tmp_path, capsys):
    (tmp_path / FILE).mkdir()
    assert main(["resume", str(tmp_path)]) == 1
    assert f"{FILE} cannot be read: [Errno 21] Is a directory" in capsys.readouterr().err


def test_options_that_an_earlier_version_did_not_have_are_their_defaults(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(tune, "tune_one", lambda options, *_: ran.append(options) or 0)
    content = {"options": {"model": "dense", "minutes": 2.0}, "spent_secs": 0.0, "started": None}
    (tmp_path / FILE).write_text(json.dumps(content))
    assert main(["resume", str(tmp_path)]) == 0
    assert (ran[0].seed, ran[0].tracker, ran[0].shape, ran[0].minutes) == (0, None, [], 2.0)


def test_options_and_what_is_left_are_used(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(tune, "tune_one", lambda options, left, _: ran.append((options, left)) or 0)
    command = ["tune", "dense", "--work-dir", str(tmp_path), "--minutes", "4", "--trials", "9"]
    assert main([*command, "--patience", "5", "--seed", "3", "--quiet"]) == 0
    manifest = json.loads((tmp_path / FILE).read_text())
    manifest["spent_secs"] = 60.0
    (tmp_path / FILE).write_text(json.dumps(manifest))
    assert main(["resume", str(tmp_path)]) == 0
    assert main(["resume", str(tmp_path), "--minutes", "10", "--trials", "20"]) == 0
    assert main(["resume", str(tmp_path), "--json"]) == 0
    (first, _), (again, left), (more, longer), (as_json, _) = ran
    assert (again.json, as_json.json) == (False, True)
    assert (again.trials, again.patience, again.seed, again.quiet) == (9, 5, 3, True)
    assert again.work_dir == first.work_dir == str(tmp_path)
    assert left == pytest.approx(3.0, abs=0.05)
    assert (more.trials, longer) == (20, pytest.approx(9.0, abs=0.05))


def test_minutes_that_are_spent_are_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tune, "tune_one", lambda *_: 0)
    content = {"options": {"model": "dense", "minutes": 2.0}, "spent_secs": 90.0, "started": None}
    (tmp_path / FILE).write_text(json.dumps(content))
    assert main(["resume", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""
    (tmp_path / FILE).write_text(json.dumps(content))
    assert main(["resume", str(tmp_path), "--minutes", "1"]) == 0
    said = "1.5 minutes are spent of the 1 of all runs together: more need a larger --minutes"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("asked", "left"), [("100", 98), ("1", 0)])
def test_a_model_gets_what_is_left_of_its_trials(tmp_path, monkeypatch, asked, left):
    ran = []
    monkeypatch.setattr(
        tune, "_tune_model", lambda options, _minutes, spent, _: ran.append((options, spent)) or 0
    )
    (tmp_path / "model.onnx").write_bytes(b"")
    work_dir = tmp_path / "work"
    command = ["tune", str(tmp_path / "model.onnx"), "--work-dir", str(work_dir)]
    assert main([*command, "--trials", asked]) == 0
    (work_dir / RECORDS).write_text("a record\nanother\n")
    assert main(["resume", str(work_dir)]) == 0
    assert [spent for _, spent in ran] == [0, 2]
    assert tune.trials_left(ran[1][0].trials, ran[1][1]) == left


def test_only_trials_of_the_command_count(tmp_path, monkeypatch):
    """Neither those of commands before, nor what the machine let down."""
    spent = []
    monkeypatch.setattr(tune, "_tune_model", lambda _options, _left, done, _: spent.append(done))
    (tmp_path / "model.onnx").write_bytes(b"")
    work_dir = tmp_path / "work"
    work_dir.mkdir()
    measured, let_down = '[0, ["trace", [0.5]]]\n', '[0, ["trace", []]]\n'
    (work_dir / RECORDS).write_text(3 * measured)
    command = ["tune", str(tmp_path / "model.onnx"), "--work-dir", str(work_dir)]
    main([*command, "--trials", "9"])
    with (work_dir / RECORDS).open("a") as records:
        records.write(2 * measured + let_down)
    for _ in range(2):
        main(["resume", str(work_dir)])
    assert spent == [0, 2, 2]


def test_a_repair_takes_no_minutes(tmp_path):
    """Nor does a torn line that the next run cuts off."""
    with pytest.raises(Killed):
        run_kept(tmp_path, {"model": "dense"}, killed_after(tmp_path, 30.0))
    started = json.loads((tmp_path / FILE).read_text())["started"]
    (tmp_path / RECORDS).write_text('[0, ["a torn')
    os.utime(tmp_path / RECORDS, (started + 30.0, started + 30.0))
    assert mend_torn_end(tmp_path) == [RECORDS]
    assert read_manifest(tmp_path).spent_secs == pytest.approx(30.0, abs=0.01)


def test_the_second_of_two_commands_changes_nothing(tmp_path, monkeypatch, capsys):
    """Not even before the first one has made a file."""
    second = []

    def tune_one(*_):
        script = "import sys; from tvm_droplet_ms.cli import main; sys.exit(main(sys.argv[1:]))"
        command = [sys.executable, "-c", script, "tune", "softmax", "--work-dir", str(tmp_path)]
        second.append(subprocess.run(command, capture_output=True, text=True, check=False))
        return 0

    monkeypatch.setattr(tune, "tune_one", tune_one)
    assert main(["tune", "dense", "--work-dir", str(tmp_path)]) == 0
    (ended,) = second
    assert ended.returncode == 1 and "another process tunes in" in ended.stderr
    assert read_manifest(tmp_path).options["model"] == "dense"


def test_a_directory_of_the_name_of_a_workload_is_no_model(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(tune, "tune_one", lambda options, *_: ran.append(options.model) or 0)
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert main(["tune", "dense", "--work-dir", "dense"]) == 0
    assert main(["resume", "dense"]) == 0
    assert ran == ["dense"] * 3

# SPDX-License-Identifier: Apache-2.0
"""The course of a method: which runs are made, which go on, and what a stopped course repeats."""

import json
from pathlib import Path

import pytest

from benchmarks import store
from benchmarks.models.compare_models import course, run_name
from benchmarks.models.models_run import open_stage
from benchmarks.store import ResultError, ResultStore


class MadeUpRuns:
    """Runs that take 10 s and measure 5 schedules more than the one before."""

    def __init__(self):
        self.settings = []
        self.failing = set()

    def __call__(self, command, _output):
        *_, written, task = command
        settings = json.loads(task)["settings"]
        self.settings.append(settings)
        if settings["minutes"] in self.failing:
            return 1
        before = settings.get("before", {"secs": 0, "trials": 0})
        # No two runs take equally long.
        secs = before["secs"] + 10 + 0.001 * len(self.settings)
        Path(written).write_text(json.dumps({"secs": secs, "trials": before["trials"] + 5}))
        return 0

    @property
    def minutes(self):
        """The minutes of the runs that were started."""
        return [settings["minutes"] for settings in self.settings]


@pytest.fixture
def runs(monkeypatch):
    made_up = MadeUpRuns()
    monkeypatch.setattr(store, "_run_group", made_up)
    return made_up


GIVEN = {"model": "small", "method": "tune", "seed": 0, "threads": 1, "files": {}}


def run_course(directory, minutes=(2.0, 5.0, 15.0), is_continued=True, **options):
    return dict(course(ResultStore(directory, **options), GIVEN, minutes, is_continued))


def test_each_run_of_a_continued_course_goes_on_with_the_one_before(tmp_path, runs):
    found = run_course(tmp_path)
    assert list(found) == [f"tune, {minutes} min, seed 0" for minutes in (2, 5, 15)]
    assert [run["trials"] for run in found.values()] == [5, 10, 15]
    assert [run["secs"] for run in found.values()] == pytest.approx([10.001, 20.003, 30.006])
    names = [run_name(settings) for settings in runs.settings]
    assert names == [f"small-tune-{run}-0-1" for run in ("2", "5-continued", "15-continued")]
    assert [settings.get("before", {}).get("name") for settings in runs.settings] == [
        None,
        *names[:2],
    ]


def test_minutes_of_a_continued_course_are_put_in_order(tmp_path, runs):
    run_course(tmp_path, minutes=(5.0, 2.0, 5.0))
    assert runs.minutes == [2.0, 5.0]


def test_undivided_runs_are_independent(tmp_path, runs):
    found = run_course(tmp_path, is_continued=False)
    assert list(found) == [f"tune, {minutes} min, seed 0" for minutes in (2, 5, 15)]
    assert not any("before" in settings for settings in runs.settings)


def test_a_finished_course_is_read(tmp_path, runs):
    assert run_course(tmp_path) == run_course(tmp_path, read_only=True)
    assert runs.minutes == [2.0, 5.0, 15.0]


def test_a_course_resumes_where_it_failed(tmp_path, runs):
    runs.failing = {5.0}
    found = list(run_course(tmp_path).values())
    assert found[0] is not None and found[1:] == [None, None]
    assert runs.minutes == [2.0, 5.0]
    runs.failing = set()
    assert list(run_course(tmp_path).values())[2]["trials"] == 15
    assert runs.minutes == [2.0, 5.0, 5.0, 15.0]


def test_a_run_that_is_made_again_invalidates_those_that_went_on_with_it(tmp_path, runs):
    run_course(tmp_path)
    (tmp_path / "small-tune-2-0-1.json").unlink()
    with pytest.raises(ResultError, match=r"5-continued-0-1\.json"):
        run_course(tmp_path)


def test_a_stage_begins_with_a_copy_without_libraries(tmp_path):
    first = open_stage(tmp_path, "first", None)
    assert not first.exists()
    first.mkdir(parents=True)
    (first / "database.json").write_text("2 minutes")
    (first / "model.so").write_text("a library")
    second = open_stage(tmp_path, "second", "first")
    assert [path.name for path in second.iterdir()] == ["database.json"]
    (second / "database.json").write_text("2 minutes and some more")
    # The stage was stopped, and begins again.
    second = open_stage(tmp_path, "second", "first")
    assert (second / "database.json").read_text() == "2 minutes"
    assert (first / "database.json").read_text() == "2 minutes"


def test_a_new_run_removes_what_a_stopped_one_left(tmp_path):
    work_dir = open_stage(tmp_path, "first", None)
    work_dir.mkdir(parents=True)
    assert not open_stage(tmp_path, "first", None).exists()


def test_a_stage_names_the_work_directory_that_is_missing(tmp_path):
    with pytest.raises(SystemExit, match="work/first is missing"):
        open_stage(tmp_path, "second", "first")

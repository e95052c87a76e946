# SPDX-License-Identifier: Apache-2.0
"""Kept results: reuse, repetition and rejection."""

import json
from pathlib import Path

import pytest

from benchmarks import store
from benchmarks.store import ResultError, ResultStore


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The settings of the children that were started; each writes a result of its own."""
    found: list[str] = []

    def run(command: list[str], output: object) -> int:
        *_, written, task = command
        settings = json.loads(task)["settings"]
        found.append(settings["name"])
        if settings["name"] == "broken":
            return 1
        Path(written).write_text(json.dumps({"value": len(found)}))
        return 0

    monkeypatch.setattr(store, "_run_group", run)
    return found


def test_finished_result_is_read_and_not_made_again(tmp_path: Path, started: list[str]):
    results = ResultStore(tmp_path)
    first = results.get("one", "tuning", {"name": "a"})
    second = ResultStore(tmp_path, read_only=True).get("one", "tuning", {"name": "a"})
    assert first == second
    assert first is not None and first["value"] == 1
    assert started == ["a"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.json", "one.log"]


def test_read_only_store_makes_no_results(tmp_path: Path, started: list[str]):
    assert ResultStore(tmp_path, read_only=True).get("one", "tuning", {"name": "a"}) is None
    assert not started


def test_failed_child_gives_no_result_and_is_retried(tmp_path: Path, started: list[str]):
    results = ResultStore(tmp_path)
    assert results.get("one", "tuning", {"name": "broken"}) is None
    assert results.get("one", "tuning", {"name": "broken"}) is None
    assert started == ["broken", "broken"]


def test_result_of_other_settings_is_rejected(tmp_path: Path, started: list[str]):
    ResultStore(tmp_path).get("one", "tuning", {"name": "a"})
    with pytest.raises(ResultError, match="another --out"):
        ResultStore(tmp_path).get("one", "tuning", {"name": "b"})


def test_result_of_other_code_is_rejected_unless_accepted(
    tmp_path: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
):
    ResultStore(tmp_path).get("one", "tuning", {"name": "a"})
    monkeypatch.setattr(store, "source_digest", lambda folders: "changed")
    with pytest.raises(ResultError, match="--accept-other-source"):
        ResultStore(tmp_path).get("one", "tuning", {"name": "a"})
    accepted = ResultStore(tmp_path, accept_other_source=True)
    assert accepted.get("one", "tuning", {"name": "a"}) is not None
    assert started == ["a"]

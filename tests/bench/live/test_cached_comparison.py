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
"""Variants judged by the truth of their winners: hand-worked runs, the report, the top-up."""

import json
from pathlib import Path
from typing import Any

import pytest

from tvm_droplet_ms.bench.live import cached, top_up
from tvm_droplet_ms.bench.live.cached_comparison import Comparison, Workload, gains_of, ratios
from tvm_droplet_ms.bench.live.cached_report import Shown, cached_report
from tvm_droplet_ms.bench.live.cached_results import CachedRun, read_runs, winners_of
from tvm_droplet_ms.bench.live.comparison import Run
from tvm_droplet_ms.bench.live.store import ResultError, ResultStore
from tvm_droplet_ms.bench.live.timed_passes import StoredFailure, TimedPass
from tvm_droplet_ms.bench.live.timing_cache import Measurement, TimingCache
from tvm_droplet_ms.bench.live.timing_file import CacheError, Machine
from tvm_droplet_ms.bench.live.trials import Trial


def run(variant: str, seed: int, *trials: tuple[str, float | None], layer: str = "dense") -> Any:
    """A run with these modules and records."""
    measured = [Trial(secs, 0.0, module=module) for module, secs in trials]
    proposing = 2.0 + seed
    key = f"workload of {layer}"
    return CachedRun(variant, layer, seed, key, "x", 1, Run(measured, 9.0, proposing, "here"))


def settled(secs: float) -> list[TimedPass]:
    return [TimedPass((secs,), f"p{number % 3}", 0.0) for number in range(9)]


@pytest.fixture
def comparison() -> Comparison:
    """Truths in seconds: b 4, o 2, lucky 8, best 1, single 3."""
    runs = [
        run("old/e", 0, ("failed", None), ("b", 4.0), ("b", 4.0)),
        run("old/e", 1, ("b", 5.0), ("b", 4.0), ("b", 4.0)),
        run("old/e", 0, ("s", 6.0), ("s", 6.0), ("s", 6.0), layer="softmax"),
        run("new/d", 0, ("b", 4.0), ("o", 2.0), ("lucky", 1.6)),
        run("new/d", 1, ("faulty", 1.0), ("o", 2.0), ("o", 2.0)),
        run("new/d", 0, ("s", 6.0), ("single", 3.0), ("single", 2.0), layer="softmax"),
    ]
    dense = {"b": settled(4.0), "o": settled(2.0), "lucky": settled(8.0), "best": settled(1.0)}
    softmax = {"s": settled(6.0), "single": [TimedPass((3.0,), "p", 0.0)]}
    workloads = {
        "workload of dense": Workload(dense, {"faulty": "computes something else"}),
        "workload of softmax": Workload(softmax, {}),
    }
    return Comparison(runs, workloads)


def test_gain_is_the_truth_of_the_winners_by_record(comparison: Comparison):
    assert comparison.gains("old/e", "new/d", 2) == {"dense": {0: 2.0}, "softmax": {0: 2.0}}
    # The record of "lucky" wins, and its truth is twice the baseline's.
    assert comparison.gains("old/e", "new/d", 3) == {"dense": {0: 0.5}, "softmax": {0: 2.0}}
    assert gains_of(comparison, "old/e", 3) == {"old/e": 1.0, "new/d": pytest.approx(1.0)}


def test_runs_without_a_winner_that_counts_have_no_pair(comparison: Comparison):
    assert comparison.gains("old/e", "new/d", 1) == {"softmax": {0: 1.0}}


def test_room_is_that_to_the_best_module_ever_seen(comparison: Comparison):
    # On softmax only "s" is settled, so that it is the best.
    expected = {"dense": {0: 4.0}, "softmax": {0: 1.0}}
    assert comparison.rooms("old/e", "new/d", 2) == expected


def test_honesty_is_truth_over_record(comparison: Comparison):
    assert comparison.honesty("new/d", 3) == {"dense": {0: 5.0}, "softmax": {0: 1.5}}


def test_winner_that_the_cache_does_not_know_is_named():
    found = Comparison([run("new/d", 0, ("a", 1.0))], {"workload of dense": Workload({}, {})})
    with pytest.raises(CacheError, match="does not know a, .* new/d on dense with seed 0"):
        found.gains("new/d", "new/d", 1)


def test_report_has_the_numbers_and_what_is_wrong(comparison: Comparison):
    text = cached_report(comparison, Shown("old/e", [2, 3], markdown=True))
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    ours = [row for row in cells if row and row[0] == "new/d"]
    pairs, gain, tenth, worst, share, record = ours[0][1:]
    assert (pairs, gain.split()[0], tenth) == ("2", "2.000", "2.000")
    assert worst == "2.000 dense, seed 0"
    # log 2 over (log 4 + log 1) / 2.
    assert (share, record) == ("1.00", "1.000")
    assert ours[1][4] == "0.500 dense, seed 0"
    assert ours[-1][1:] == ["3", "9", "0", "3", "2.3 [2.0-3.0]"]
    assert "1 winners have too few passes" in text
    assert "faulty won a run and does not count: computes something else" in text


def test_baseline_is_chosen_or_named():
    assert cached.choose_baseline(None, ["a/droplet", "b/evolutionary"]) == "b/evolutionary"
    assert cached.choose_baseline(None, ["a/droplet"]) == "a/droplet"
    assert cached.choose_baseline("a/droplet", ["a/droplet", "b/evolutionary"]) == "a/droplet"
    with pytest.raises(ResultError, match="--baseline is c/x, expected one of a/droplet"):
        cached.choose_baseline("c/x", ["a/droplet"])


@pytest.mark.parametrize("label", ["", "a/b", "..", "top_up"])
def test_label_is_the_name_of_a_directory(label: str):
    with pytest.raises(SystemExit):
        cached.parse_arguments(["--label", label])
    assert cached.parse_arguments(["--label", "no-prior.2"]).label == "no-prior.2"


def test_checkpoints_end_with_the_last_trial():
    args = cached.parse_arguments(["--report", "--trials", "64"])
    assert cached.checkpoints_of(args) == [8, 16, 32, 64]
    args = cached.parse_arguments(["--report", "--trials", "20"])
    assert cached.checkpoints_of(args) == [8, 16, 20]


def test_runs_of_all_labels_are_read_if_their_settings_are_wanted(tmp_path: Path):
    for label, trials in (("one", 64), ("two", 64), ("three", 8)):
        (tmp_path / label).mkdir()
        settings = {"label": label, "method": "m", "layer": "dense", "seed": 0, "trials": trials}
        content = {"settings": settings, "workload": "w", "source": "x", "measured": 2}
        content |= {"trials": [{"secs": 1.0, "elapsed": 1.0, "module": "a"}], "environment": ""}
        content |= {"wall_secs": 5.0, "profile": {"SendToBuilder": 2.0}}
        (tmp_path / label / "run.json").write_text(json.dumps(content))
    runs = read_runs(tmp_path, {"trials": 64, "seed": [0, 1]})
    assert [found.variant for found in runs] == ["one/m", "two/m"]
    assert runs[0].run.proposing_secs == 3.0
    assert winners_of(runs, [1]) == {"w": {"a"}}


def test_leaders_are_timed_until_all_are_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Timing again shows that "lucky" is slow, which brings "next" within reach of the best."""
    true = {"lucky": 5.0, "steady": 1.0, "next": 1.04, "slow": 3.0, "winner": 2.0, "broken": 1.0}
    machine = Machine("t", "c", 1)
    path = tmp_path / "timings.sqlite"
    asked: list[list[str]] = []

    def get(self: ResultStore, name: str, module: str, settings: dict[str, Any]) -> dict[str, Any]:
        asked.append(settings["modules"])
        with TimingCache(settings["cache"], machine) as cache:
            for name in settings["modules"]:
                if name == "broken":
                    cache.set_fault(name, "does not build")
                    continue
                timed = TimedPass((true[name],), f"p{len(asked)}", 0.0, "top-up")
                again = [Measurement(name, [], timed)] * settings["passes"]
                cache.add("workload of dense", "dense", again)
        return {}

    monkeypatch.setattr(ResultStore, "get", get)
    with TimingCache(path, machine) as cache:
        first = {**true, "lucky": 0.5, "broken": 0.51}
        found = [
            Measurement(name, [], TimedPass((secs,), "s", 0.0)) for name, secs in first.items()
        ]
        found.append(Measurement("failed", [], StoredFailure("build", "no")))
        cache.add("workload of dense", "dense", found, seed=0)
    runs = [run("new/d", 0, ("winner", 2.0), ("lucky", 0.5))]
    top_up.top_up_all(path, tmp_path, runs, [1, 2])
    assert asked[0] == ["broken", "lucky", "winner"]
    assert asked[1] == ["lucky", "next", "steady", "winner"]
    with TimingCache(path) as cache:
        counts = {name: len(passes) for name, passes in cache.passes("workload of dense").items()}
    assert counts == {"lucky": 10, "winner": 10, "steady": 10, "next": 10, "slow": 1}
    top_up.top_up_all(path, tmp_path, runs, [1, 2])
    assert len(asked) == 4


def test_failed_top_up_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ResultStore, "get", lambda *_: None)
    path = tmp_path / "timings.sqlite"
    with TimingCache(path, Machine("t", "c", 1)) as cache:
        timed = Measurement("a", [], TimedPass((1.0,), "s", 0.0))
        cache.add("workload of dense", "dense", [timed], seed=0)
    with pytest.raises(ResultError, match="leaders of dense were not timed"):
        top_up.top_up_all(path, tmp_path, [run("new/d", 0, ("a", 1.0))], [1])


def test_pairs_are_of_equal_seeds(comparison: Comparison):
    assert ratios({"dense": {3: 2.0, 1: 0.5}}) == {"dense": [2.0, 0.5]}
    assert comparison.gains("new/d", "old/e", 3)["dense"] == {0: 2.0}


def test_cache_of_another_machine_is_refused_before_any_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def start(*_: Any) -> None:
        raise AssertionError("a run was started")

    monkeypatch.setattr(ResultStore, "get", start)
    path = tmp_path / "timings.sqlite"
    TimingCache(path, Machine("another target", "another CPU", 1)).close()
    options = ["--out", str(tmp_path), "--cache", str(path), "--label", "one"]
    assert cached.main(options) == 1
    error = capsys.readouterr().err
    assert "timings of target another target" in error and error.count("\n") == 1


def test_run_of_other_code_needs_another_label(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def get(self: ResultStore, name: str, module: str, settings: dict[str, Any]) -> None:
        assert (self.directory, module) == (tmp_path / "one", "cached_run")
        raise ResultError(f"{name} was made by other code")

    monkeypatch.setattr(ResultStore, "get", get)
    options = ["--out", str(tmp_path), "--cache", str(tmp_path / "t.sqlite"), "--label", "one"]
    assert cached.main([*options, "--layers", "dense"]) == 1
    error = capsys.readouterr().err
    assert "dense-droplet-0 was made by other code; another --label serves as well" in error

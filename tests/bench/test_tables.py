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
"""Tables of a comparison, against values worked out by hand."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tvm_droplet_ms.bench.compare.comparison import Comparison, incumbents
from tvm_droplet_ms.bench.compare.cost_tables import format_losses, format_profile, format_seconds
from tvm_droplet_ms.bench.compare.results import RunResult, RunSettings
from tvm_droplet_ms.bench.compare.tables import (
    format_catching_up,
    format_differences,
    format_report,
    format_spaces,
    format_summary,
)
from tvm_droplet_ms.bench.score import random_baseline
from tvm_droplet_ms.bench.table import Trial

TRIALS = 16
TIMES = {"a": [1.0, 2.0, 4.0, math.inf], "b": [3.0, 6.0, 12.0]}


def trial(best_estimate: float, secs: float | None = None, took: float = 1.0) -> Trial:
    failed = math.isinf(best_estimate)
    return Trial(
        module=1,
        secs=best_estimate if secs is None else secs,
        best_estimate=best_estimate,
        build_secs=took / 2,
        run_secs=took / 4,
        proposed_secs=took / 4,
        failure="runtime" if failed else None,
    )


def result(
    strategy: str,
    space: str,
    seed: int,
    times: Sequence[float | Trial],
    *,
    error: str | None = None,
    wall_secs: float = 0.0,
    scopes: dict[str, float] | None = None,
    dropped: dict[str, int] | None = None,
) -> RunResult:
    settings = RunSettings(space, "digest", strategy, seed, TRIALS, 8, False, {}, "code")
    trials = tuple(time if isinstance(time, Trial) else trial(time) for time in times)
    return RunResult(settings, trials, wall_secs, scopes or {}, error, dropped)


def cells(table: str) -> dict[str, list[str]]:
    """The lines of a table by their first cell, the rule left out."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    return {line[0]: line[1:] for line in [lines[0], *lines[2:]]}


# Fractions at the end: a 1 and 0.5, b 1 and 1. 90% is reached after 2, never, 8 and 4 trials.
RUNS = [
    result("droplet", "a", 0, [math.inf, 1.0, 2.0]),
    result("droplet", "a", 1, [4.0, 2.0]),
    result("droplet", "b", 0, [12.0] * 7 + [3.0]),
    result("droplet", "b", 1, [6.0, 6.0, 12.0, 3.0]),
]


def test_summary_holds_means_over_seeds_and_then_over_spaces() -> None:
    table = cells(format_summary(Comparison(RUNS, TIMES)))
    assert table["strategy"] == [
        "runs",
        "score",
        "at 8",
        "at 16",
        "trials to 90%",
        "trials to 95%",
        "trials to 99%",
    ]
    runs, _, at_8, at_16, *trials_to = table["droplet"]
    assert runs == "4"
    # The mean of 1 and 0.5 is 0.75, that of 1 and 1 is 1. Drawing the seeds of a again gives 0.5,
    # 0.75 or 1 for it, which makes 0.75 to 1 for both spaces.
    assert at_8 == at_16 == "0.875 (0.750 to 1.000)"
    # The geometric mean of 2, 8 and 4.
    assert trials_to == ["4.0 (75%)"] * 3


def test_quality_is_zero_before_first_success() -> None:
    runs = [result("droplet", "a", seed, [math.inf] * 8 + [1.0]) for seed in range(2)]
    _, _, at_8, at_16, *_ = cells(format_summary(Comparison(runs, TIMES)))["droplet"]
    assert at_8 == "0.000 (0.000 to 0.000)" and at_16 == "1.000 (1.000 to 1.000)"


def test_quality_that_no_run_reaches_has_no_trials() -> None:
    runs = [result("droplet", "a", 0, [4.0, 2.0])]
    assert cells(format_summary(Comparison(runs, TIMES)))["droplet"][-3:] == ["none"] * 3


def test_score_is_one_for_optimum_at_once_and_zero_for_random_baseline() -> None:
    times = {"a": [float(time) for time in range(1, 202)]}
    baseline = random_baseline(times["a"], np.arange(1, TRIALS + 1))
    runs = [
        result("oracle", "a", 0, [1.0]),
        result("chance", "a", 0, [float(time) for time in baseline]),
        result("worst", "a", 0, [201.0]),
    ]
    comparison = Comparison(runs, times)
    table = cells(format_summary(comparison))
    assert table["oracle"][1] == "1.000 (1.000 to 1.000)"
    # Random search is expected to be 95% of the way from the median, 101, to 1 when it has found
    # 6: the 196th from the worst, after 195 / (202 - 195) trials, rounded up to 28. The runs end
    # after 16; from then on the baseline leaves behind what it had found itself.
    assert comparison.scores["a"].trials.tolist() == list(range(1, 29))
    later = random_baseline(times["a"], np.arange(17, 29))
    behind = (later - baseline[-1]) / (later - 1.0)
    assert float(table["chance"][1].split()[0]) == pytest.approx(behind.sum() / 28, abs=1e-3)
    assert float(table["worst"][1].split()[0]) < -1
    assert "keep their result to the end of longer budgets: a." in " ".join(
        format_report(comparison).split()
    )


def test_space_without_score_is_named_and_left_out_of_it() -> None:
    times = {"a": [float(time) for time in range(1, 202)], "flat": [2.0, 2.0, 2.0]}
    runs = [result("oracle", "a", 0, [1.0]), result("oracle", "flat", 0, [2.0])]
    comparison = Comparison(runs, times)
    assert cells(format_summary(comparison))["oracle"][1] == "1.000 (1.000 to 1.000)"
    assert "Too small or too flat to have a score: flat." in format_report(comparison)


def test_with_noise_a_run_returns_the_lowest_reported_time() -> None:
    # The second looks better than it is; the third, which is better, looks worse.
    run = result("droplet", "a", 0, [trial(2.0, 2.0), trial(4.0, 1.5), trial(1.0, 1.6)])
    assert incumbents(run).tolist() == [2.0, 4.0, 4.0]
    at_16 = cells(format_summary(Comparison([run], TIMES)))["droplet"][3]
    assert at_16 == "0.250 (0.250 to 0.250)"


def test_spaces_are_lines_and_strategies_columns() -> None:
    runs = [*RUNS, result("random", "b", 0, [6.0, 12.0])]
    table = cells(format_spaces(Comparison(runs, TIMES)))
    assert table == {
        "space": ["droplet", "random"],
        "a": ["0.750", "-"],
        "b": ["1.000", "0.500"],
    }


def test_simulated_seconds_end_at_the_first_good_trial() -> None:
    runs = [
        result("droplet", "a", 0, [trial(4.0, took=2.0), trial(1.0, took=8.0), trial(2.0)]),
        result("droplet", "a", 1, [trial(1.0, took=4.0)]),
        result("droplet", "a", 2, [trial(2.0, took=100.0)]),
        result("random", "a", 0, [2.0]),
    ]
    table = cells(format_seconds(Comparison(runs, TIMES)))
    # The median of 2 + 8, 4 and never; whole runs take 11, 4 and 100.
    assert table["droplet"] == ["10.0", "67%", "11.0"]
    assert table["random"] == ["not reached", "0%", "1.0"]


def test_profile_divides_seconds_of_run() -> None:
    scopes = {
        "EvoSearch/Evolve/Mutation": 3.0,
        "EvoSearch/PickWithEpsGreedy": 1.0,
        "SendToBuilder": 0.5,
        "SendToRunner": 0.25,
        "JoinRunnerFutures": 0.25,
        "MeasureCallback/UpdateCostModel": 2.0,
        "MeasureCallback/AddToDatabase": 0.5,
        "MeasureCallback/RemoveBuildArtifact": 0.5,
    }
    runs = [
        result("evolutionary", "a", 0, [1.0], wall_secs=8.0, scopes=scopes),
        result("evolutionary", "a", 1, [1.0], wall_secs=2.0),
    ]
    table = cells(format_profile(Comparison(runs, TIMES)))
    parts = dict(zip(table["strategy"], table["evolutionary"]))
    assert parts == {
        "seconds": "5.00",
        "proposing": "2.00",
        "cost model": "1.00",
        "database": "0.25",
        "replaying": "0.75",
        "other": "1.00",
    }


def test_scopes_of_strategy_are_proposing() -> None:
    scopes = {"Some/Generate": 4.0, "Some/Notify": 1.0, "EvoSearch/Evolve/Mutation": 3.0}
    runs = [result("some", "a", 0, [1.0], wall_secs=8.0, scopes=scopes)]
    assert cells(format_profile(Comparison(runs, TIMES)))["some"] == [
        "8.00",
        "5.00",
        *["0.00"] * 3,
        "3.00",
    ]


def test_trials_to_the_result_without_a_prior() -> None:
    """Worked by hand: on a, two trials reach the result of 64; on b it is never reached."""
    slow = [result("droplet without prior", "a", seed, [4.0] * 10 + [2.0]) for seed in range(2)]
    slow += [result("droplet without prior", "b", 0, [3.0])]
    quick = [
        result("droplet", "a", 0, [4.0, 1.0]),
        result("droplet", "a", 1, [math.inf, math.inf, math.inf, 2.0]),
        result("droplet", "b", 0, [6.0]),
    ]
    long = [replace(run, settings=replace(run.settings, trials=128)) for run in slow + quick]
    comparison = Comparison(long, TIMES)
    table = cells(format_catching_up(comparison, "droplet without prior", "droplet"))
    assert table["space"] == ["at 64", "trials", "ratio", "at 128", "trials", "ratio"]
    # The means of the quick one on a: 0.125, 0.5 from the second trial on, 0.75 from the fourth.
    assert table["a"] == ["0.500", "2", "32.0", "0.500", "2", "64.0"]
    assert table["b"] == ["1.000", "never", "-", "1.000", "never", "-"]
    assert table["geometric mean"] == ["", "", "4.0", "", "", "5.7"]
    report = format_report(comparison)
    assert "Trials of droplet to the result of droplet without prior" in report
    assert "to the result of" not in format_report(Comparison(slow, TIMES))


def test_failed_trials_and_dropped_proposals() -> None:
    runs = [
        result("post-opt", "a", 0, [1.0, math.inf], dropped={"an error": 2, "another": 1}),
        result("post-opt", "a", 1, [1.0, math.inf, math.inf, 2.0], dropped={"another": 4}),
        result("post-opt", "b", 0, [3.0], dropped={}),
        result("post-opt", "b", 1, [3.0]),
        result("droplet", "a", 0, [1.0, math.inf]),
        result("random", "a", 0, [], error="an error"),
    ]
    table = cells(format_losses(Comparison(runs, TIMES)))
    # 2, 4, 1 and 1 trials, of which 1, 2, 0 and 0 failed; 3, 4 and 0 drops in the runs that tell.
    assert table["post-opt"] == ["2.0", "0.8", "2.3", "another (5), an error (2)"]
    assert table["droplet"] == ["2.0", "1.0", "-", "-"]
    assert table["random"] == ["-"] * 4


def test_failed_runs_are_counted_and_reported() -> None:
    failed = result(
        "droplet", "b", 2, [], error="Traceback ...\nValueError: the fault of this test"
    )
    comparison = Comparison([*RUNS, failed], TIMES)
    assert cells(format_summary(comparison))["droplet"][0] == "4 of 5"
    report = format_report(comparison)
    assert "1 runs failed" in report
    assert "droplet on b, seed 2: ValueError: the fault of this test" in report


def test_strategy_without_finished_run_on_space_has_no_means() -> None:
    failed = result("tpe", "b", 0, [], error="Failure")
    comparison = Comparison([*RUNS, result("tpe", "a", 0, [1.0]), failed], TIMES)
    table = cells(format_summary(comparison))
    assert table["tpe"] == ["1 of 2", *["-"] * 6]
    assert table["droplet"][2] == "0.875 (0.750 to 1.000)"


def test_differences_are_paired_by_seed() -> None:
    # On each seed half of what the other has found, so that the difference hardly spreads.
    runs = [
        result("droplet", "a", 0, [1.0]),
        result("droplet", "a", 1, [2.0]),
        result("random", "a", 0, [2.0]),
        result("random", "a", 1, [4.0]),
    ]
    table = cells(format_differences(Comparison(runs, TIMES), "droplet"))
    # 0.5 - 1 and 0.25 - 0.5.
    assert table["random"][1:] == ["-0.375 (-0.500 to -0.250)"] * 2
    assert "droplet" not in table
    report = format_report(Comparison(runs, TIMES))
    assert "Difference from droplet, the runs paired by seed" in report
    failed = result("random", "b", 0, [], error="Failure")
    table = cells(format_differences(Comparison([*runs, failed], TIMES), "droplet"))
    assert table["random"] == ["-"] * 3


def test_score_difference_equals_difference_of_scores() -> None:
    times = {"a": [float(time) for time in range(1, 202)]}
    runs = [
        result("droplet", "a", 0, [1.0]),
        result("random", "a", 0, list(random_baseline(times["a"], np.arange(1, TRIALS + 1)))),
    ]
    comparison = Comparison(runs, times)
    scores = [
        float(cells(format_summary(comparison))[name][1].split()[0])
        for name in ("droplet", "random")
    ]
    difference = cells(format_differences(comparison, "droplet"))["random"][0].split()[0]
    assert float(difference) == pytest.approx(scores[1] - scores[0], abs=2e-3)
    assert float(difference) < -0.5


def test_lines_of_a_table_are_equally_wide() -> None:
    comparison = Comparison([*RUNS, result("random", "b", 0, [6.0])], TIMES)
    for make in (format_summary, format_spaces, format_seconds, format_profile):
        assert len({len(line) for line in make(comparison).splitlines()}) == 1

# SPDX-License-Identifier: Apache-2.0
"""Tables of a comparison, against values worked out by hand."""

import math
from collections.abc import Sequence

from tvm_droplet_ms.bench.compare.results import RunResult, RunSettings
from tvm_droplet_ms.bench.compare.tables import (
    Comparison,
    format_differences,
    format_report,
    format_spaces,
    format_summary,
    incumbents,
)
from tvm_droplet_ms.bench.table import Trial

TRIALS = 16
TIMES = {"a": 1.0, "b": 3.0}


def trial(best_estimate: float, secs: float | None = None) -> Trial:
    failed = math.isinf(best_estimate)
    return Trial(
        module=1,
        secs=best_estimate if secs is None else secs,
        best_estimate=best_estimate,
        failure="runtime" if failed else None,
    )


def result(
    strategy: str,
    space: str,
    seed: int,
    times: Sequence[float | Trial],
    *,
    error: str | None = None,
) -> RunResult:
    settings = RunSettings(space, "digest", strategy, seed, TRIALS, 8, False, "0.27", "code")
    trials = tuple(time if isinstance(time, Trial) else trial(time) for time in times)
    return RunResult(settings, trials, error)


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
    assert table["strategy"] == ["runs", "at 8", "at 16", "trials to 90%", "trials to 95%"]
    runs, at_8, at_16, *trials_to = table["droplet"]
    assert runs == "4"
    # The mean of 1 and 0.5 is 0.75, that of 1 and 1 is 1. Drawing the seeds of a again gives 0.5,
    # 0.75 or 1 for it, which makes 0.75 to 1 for both spaces.
    assert at_8 == at_16 == "0.875 (0.750 to 1.000)"
    # The geometric mean of 2, 8 and 4.
    assert trials_to == ["4.0 (75%)"] * 2


def test_quality_is_zero_before_first_success() -> None:
    runs = [result("droplet", "a", seed, [math.inf] * 8 + [1.0]) for seed in range(2)]
    _, at_8, at_16, *_ = cells(format_summary(Comparison(runs, TIMES)))["droplet"]
    assert at_8 == "0.000 (0.000 to 0.000)" and at_16 == "1.000 (1.000 to 1.000)"


def test_quality_that_no_run_reaches_has_no_trials() -> None:
    runs = [result("droplet", "a", 0, [4.0, 2.0])]
    assert cells(format_summary(Comparison(runs, TIMES)))["droplet"][-2:] == ["none"] * 2


def test_with_noise_a_run_returns_the_lowest_reported_time() -> None:
    # The second looks better than it is; the third, which is better, looks worse.
    run = result("droplet", "a", 0, [trial(2.0, 2.0), trial(4.0, 1.5), trial(1.0, 1.6)])
    assert incumbents(run).tolist() == [2.0, 4.0, 4.0]
    at_16 = cells(format_summary(Comparison([run], TIMES)))["droplet"][2]
    assert at_16 == "0.250 (0.250 to 0.250)"


def test_spaces_are_lines_and_strategies_columns() -> None:
    runs = [*RUNS, result("random", "b", 0, [6.0, 12.0])]
    table = cells(format_spaces(Comparison(runs, TIMES)))
    assert table == {"space": ["droplet", "random"], "a": ["0.750", "-"], "b": ["1.000", "0.500"]}


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
    assert table["tpe"] == ["1 of 2", *["-"] * 4]
    assert table["droplet"][1] == "0.875 (0.750 to 1.000)"


def test_differences_are_paired_by_seed() -> None:
    # On each seed half of what the other has found, so that the difference hardly spreads.
    runs = [
        result("droplet", "a", 0, [1.0]),
        result("droplet", "a", 1, [2.0]),
        result("random", "a", 0, [2.0]),
        result("random", "a", 1, [4.0]),
    ]
    table = cells(format_differences(Comparison(runs, TIMES)))
    # 0.5 - 1 and 0.25 - 0.5.
    assert table["random"] == ["-0.375 (-0.500 to -0.250)"] * 2
    assert "droplet" not in table
    report = format_report(Comparison(runs, TIMES))
    assert "Difference from droplet, the runs paired by seed" in report
    failed = result("random", "b", 0, [], error="Failure")
    table = cells(format_differences(Comparison([*runs, failed], TIMES)))
    assert table["random"] == ["-"] * 2

# SPDX-License-Identifier: Apache-2.0
"""The statistics of the live comparison, and the file of its latencies."""

from pathlib import Path

import pytest

from benchmarks.searches import compare_searches as compare
from benchmarks.searches.compare_report import Report
from benchmarks.searches.comparison import (
    LayerResults,
    Run,
    Trial,
    best_trial,
    interval,
    mean_ratio,
    ratios_of,
    read_records,
    worst_layer,
    write_records,
)

DATA = Path(__file__).parents[2] / "docs" / "data"


def _trial(secs: float | None) -> Trial:
    return Trial(secs, 0.0)


def test_best_trial_looks_at_the_first_trials_only():
    trials = [_trial(None), _trial(3.0), _trial(2.0), _trial(1.0)]
    assert best_trial(trials, 1) is None
    assert best_trial(trials, 3) == trials[2]
    assert best_trial(trials, 9) == trials[3]


def test_interval_draws_layers_and_then_seeds():
    # The seeds of each layer agree: the mean is one layer's value, the other's, or between them.
    assert interval({"a": [2.0, 2.0, 2.0], "b": [0.5, 0.5]}) == pytest.approx((0.5, 2.0))
    assert interval({str(i): [1.1] for i in range(4)}) == pytest.approx((1.1, 1.1))
    # The logarithms of 16 values of +-0.223 have a mean with the deviation 0.223 / 4.
    low, high = interval({str(i): [0.8, 1.25] for i in range(8)})
    assert low == pytest.approx(0.896, abs=0.02)
    assert high == pytest.approx(1.116, abs=0.02)


def test_mean_ratio_counts_each_layer_once():
    ratios = {"a": [4.0, 1.0, 2.0, 2.0], "b": [0.5]}
    assert mean_ratio(ratios) == pytest.approx(1.0)
    assert worst_layer(ratios) == ("b", pytest.approx(0.5))


def test_ratio_is_above_one_where_the_method_is_faster():
    results = LayerResults()
    for method, secs in {"evolutionary": 2.0, "droplet": 1.0}.items():
        results.latencies[method, 0, 8] = secs
    for seed in range(2):
        results.runs["droplet", seed] = Run([_trial(3.0), _trial(1.9)], 1.0, 0.5, "")
    layers = {"a": results, "empty": LayerResults()}
    assert ratios_of(layers, "evolutionary", "droplet", [0, 1], 8) == {"a": [2.0]}
    assert results.trials_to_baseline("evolutionary", "droplet", 0, 8) == 2
    assert results.trials_to_baseline("evolutionary", "droplet", 1, 8) is None


def test_proposing_time_is_remainder():
    profile = {"Total": 10.0, "SendToBuilder": 4.0, "JoinRunnerFutures": 3.0, "EvoSearch/Sample": 2}
    run = Run.from_json({"trials": [], "wall_secs": 10.0, "profile": profile, "environment": "x"})
    assert run.proposing_secs == pytest.approx(3.0)


def test_flattery_compares_the_winner_with_its_record():
    results = LayerResults()
    results.latencies["a", 0, 2] = 3.0
    results.runs["a", 0] = Run([_trial(None), _trial(2.0), _trial(1.0)], 1.0, 0.5, "")
    assert results.flattery("a", 0, 2) == 1.5
    assert results.flattery("a", 1, 2) is None


def test_single_runs_far_behind_are_counted():
    layers = {"conv2d": LayerResults(), "dense": LayerResults()}
    for results, latencies in zip(layers.values(), ((1.0, 4.0), (0.5, 1.2)), strict=True):
        for seed, latency in enumerate(latencies):
            for method, secs in (("evolutionary", 1.0), ("droplet", latency)):
                results.latencies[method, seed, 8] = secs
                results.runs[method, seed] = Run([_trial(secs / 2)], 1.0, 0.5, "")
    report = Report(layers, "evolutionary", ["evolutionary", "droplet"], [0, 1], [8])
    lines = [line.strip("|").split("|") for line in report.text().splitlines()]
    # The ratios are 1, 0.25, 2 and 0.83.
    wanted = ["droplet", "2, 1 of 4", "2.000, 2.00"]
    assert wanted in [[cell.strip() for cell in line] for line in lines]


def test_latencies_are_read_as_they_were_written(tmp_path: Path):
    results = LayerResults(
        {(method, 0): Run([], 12.0, 0.0, "") for method in ("evolutionary", "droplet")},
        {("evolutionary", 0, 8): 2e-3, ("evolutionary", 0, 16): 1e-3, ("droplet", 0, 8): 1e-3},
    )
    path = tmp_path / "live.csv"
    write_records(path, {"dense": results}, [8, 16])
    layers, checkpoints = read_records(path)
    assert checkpoints == [8, 16]
    assert layers["dense"].latencies == pytest.approx(results.latencies)
    report = Report(layers, "evolutionary", ["evolutionary", "droplet"], [0], checkpoints)
    assert "2.000 (2.000 to 2.000), dense 2.00" in report.ratios()
    # At 8 trials evolution takes twice as long as at 16, ours as long as evolution at 16.
    beside_end = report.ratios().split("beside `evolutionary` at 16")[1]
    assert "0.500 (0.500 to 0.500)" in beside_end and "1.000 (1.000 to 1.000)" in beside_end
    assert [line.split()[-2] for line in report.seconds().splitlines()[-2:]] == ["12", "12"]


def test_a_comparison_without_latencies_has_empty_tables(tmp_path: Path):
    path = tmp_path / "live.csv"
    path.write_text("layer,method,seed,seconds\ndense,droplet,0,12\n")
    assert compare.main(["--records", str(path)]) == 0


@pytest.mark.parametrize("path", sorted(DATA.glob("live*.csv")), ids=lambda path: path.stem)
def test_kept_results_can_be_printed(path: Path, capsys: pytest.CaptureFixture[str]):
    assert compare.main(["--records", str(path)]) == 0
    assert "### All layers" in capsys.readouterr().out

# SPDX-License-Identifier: Apache-2.0
"""The tables of a tuning run match hand-computed values."""

from dataclasses import replace

from tvm_droplet_ms.cli.demo.report import KernelRow, format_table
from tvm_droplet_ms.display.tables import format_profile, shown_share

ROW = KernelRow(
    kernel="matmul",
    flop=2e9,
    untuned_secs=[2.0, 1.0, 4.0],  # the median, 2 s, is 1 GFLOP/s
    explored_secs=[0.04, 0.05, 0.08],  # the median, 0.05 s, is 40 GFLOP/s
    descended_secs=[0.02, 0.04, 0.08],  # the median, 0.04 s, is 50 GFLOP/s
    explore_trials=32,
    descend_trials=31,
)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_row_shows_median_rates_and_round_ratios() -> None:
    line = format_table([ROW], blas_gflops=100.0).splitlines()[2]
    # The ratios per round are 2, 1.25 and 1.
    assert _cells(line) == ["matmul", "1.0", "40.0", "50.0", "1.25x (1.00-2.00)", "32", "31", "50%"]


def test_descent_without_gain_repeats_rate() -> None:
    row = replace(ROW, descended_secs=None)
    line = format_table([row], blas_gflops=80.0).splitlines()[2]
    assert _cells(line)[2:5] == ["40.0", "40.0", "nothing better"]
    assert _cells(line)[-1] == "50%"


def test_slower_result_is_reported_as_slower() -> None:
    row = replace(ROW, descended_secs=[0.08, 0.1, 0.16])
    assert _cells(format_table([row], 100.0).splitlines()[2])[3:5] == ["20.0", "0.50x (0.50-0.50)"]


def test_missing_blas_rate_is_shown_as_unknown() -> None:
    assert _cells(format_table([ROW], blas_gflops=None).splitlines()[2])[-1] == "unknown"


def test_table_lines_are_equally_wide_and_ordered() -> None:
    rows = [ROW, replace(ROW, kernel="a kernel with a long name", descended_secs=None)]
    lines = format_table(rows, 100.0).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert [_cells(line)[0] for line in lines[2:]] == ["matmul", "a kernel with a long name"]
    assert len(_cells(lines[0])) == len(_cells(lines[1])) == len(_cells(lines[2]))


def test_profile_shows_shares_of_sum() -> None:
    lines = format_profile({"building": 6.0, "running": 3.04, "other": 0.96}).splitlines()
    rows = [_cells(line) for line in lines[2:]]
    assert rows == [
        ["building", "6.0", "60%"],
        ["running", "3.0", "30%"],
        ["other", "1.0", "10%"],
        ["total", "10.0", "100%"],
    ]


def test_a_profile_of_nothing_has_no_time():
    assert format_profile({}).splitlines()[-1].split("|")[2:4] == ["     0.0 ", "    0% "]


def test_what_is_beyond_the_measured_rates_has_reached_them():
    shares = [0.0, 0.004, 0.62, 0.996, 1.0, 1.02, 7.0]
    assert [shown_share(share) for share in shares] == ["0%", "0%", "62%", "100%"] + [">=100%"] * 3

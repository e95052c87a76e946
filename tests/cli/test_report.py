# SPDX-License-Identifier: Apache-2.0
"""The tables of a tuning run match hand-computed values."""

from tvm_droplet_ms.display.tables import align, format_profile, shown_share


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_table_lines_are_equally_wide_and_ordered() -> None:
    rows = [("kernel", "rate"), ("matmul", "1.0"), ("a kernel with a long name", "50.0")]
    lines = align(rows).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert [_cells(line) for line in (lines[0], *lines[2:])] == [list(row) for row in rows]


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

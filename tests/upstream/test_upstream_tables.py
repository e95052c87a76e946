# SPDX-License-Identifier: Apache-2.0
"""The tables that ``upstream/compare.py`` writes."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "upstream"


@pytest.fixture(scope="module")
def compare():
    spec = importlib.util.spec_from_file_location("compare", ROOT / "upstream" / "compare.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def line(layer: str, evolution: float, post_optimization: float, droplet: float) -> dict:
    times = {
        "evolutionary": evolution,
        "post_optimization": post_optimization,
        "droplet": droplet,
    }
    what = {"trials": 64, "machine": "one core", "date": "2026-11-26"}
    return {"layer": layer, "microseconds": times, **what}


def test_each_other_method_is_compared_with(compare):
    text = compare.table(
        [line("one", 4, 1, 1), line("one", 1, 2, 1), line("two", 1, 2, 2), line("two", 2, 8, 2)]
    )
    assert "| one | 2 | 2 | 1.414 | 1 | 2.00 (1.00 to 4.00) | 1.41 (1.00 to 2.00) |" in text
    assert "| two | 2 | 1.414 | 4 | 2 | 0.71 (0.50 to 1.00) | 2.00 (1.00 to 4.00) |" in text
    rows = [row.strip("| ").split(" | ") for row in text.splitlines()]
    rows = {row[0]: row for row in rows if row[-1].endswith(" of 4")}
    # Ratios 4, 1, 1/2 and 1, and 1, 2, 1 and 4.
    assert rows["evolutionary"][1::2] == ["1.19", "1.00", "4.00"]
    assert rows["evolutionary"][4::2] == ["0.50", "1 of 4"]
    assert rows["post_optimization"][1::2] == ["1.68", "1.50", "4.00"]
    assert rows["post_optimization"][4::2] == ["1.00", "2 of 4"]


def test_numbers_of_trials_are_not_mixed(compare):
    lines = [line("one", 4, 1, 1), line("one", 1, 2, 1) | {"trials": 200}]
    first, second = compare.table(lines).split("| layer |")[1:]
    assert "| one | 1 | 4 | 1 | 1 | 4.00 (4.00 to 4.00) | 1.00 (1.00 to 1.00) |" in first
    assert "| one | 1 | 1 | 2 | 1 | 1.00 (1.00 to 1.00) | 2.00 (2.00 to 2.00) |" in second
    assert "64 trials" in first and "200 trials" in second and "200 trials" not in first


def test_page_has_the_table_of_its_data(compare, tmp_path):
    page = tmp_path / "droplet.md"
    page.write_text((DOCS / "droplet.md").read_text())
    lines = [json.loads(line) for line in (DOCS / "droplet.jsonl").read_text().splitlines()]
    compare.write_table(page, lines)
    assert page.read_text() == (DOCS / "droplet.md").read_text()


def test_no_table_before_there_is_data(compare):
    assert compare.table([]) == "Not measured yet.\n"

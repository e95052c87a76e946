# SPDX-License-Identifier: Apache-2.0
"""``docs/faults.md`` names tests that exist, at least one for each fault."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "faults.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)((?:::\w+)+)`")

FAULTS = (
    "a kernel hangs",
    "a kernel crashes",
    "a kernel runs out of memory",
    "a kernel is wrong",
    "all builds fail",
    "the space is empty",
    "the disk of the work directory is full",
    "the work directory is read-only",
    "the last line is torn",
    "other damage",
    "times are NaN",
    "a record does not replay",
    "a second run in the same directory",
    "the run is killed",
    "the clock jumps",
    "the directory is of another target",
    "a dead server",
    "no server",
    "an unreachable tracker",
)


def rows() -> list[list[str]]:
    """The cells of the tables, without their headings."""
    found = []
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| ") and not line.startswith(("| ---", "| fault |")):
            found.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return found


def has_test(path: str, names: list[str]) -> bool:
    """True if a file has a test of this name, in classes of these names."""
    body: list[ast.stmt] = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for name in names:
        nodes = [node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        named = [node for node in nodes if node.name == name]
        if not named:
            return False
        body = named[0].body
    return isinstance(named[0], ast.FunctionDef)


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_row_is_whole_and_its_tests_exist(row: list[str]):
    assert len(row) == 5 and all(row)
    found = TEST.findall(row[-1])
    assert found
    for path, names in found:
        assert (ROOT / path).exists(), path
        assert has_test(path, names.split("::")[1:]), f"{path}{names}"


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_has_a_row(fault: str):
    assert [row[0] for row in rows() if row[0].startswith(fault)]


def test_a_test_that_does_not_exist_is_found():
    own = "tests/test_fault_table.py"
    assert has_test(own, ["test_every_fault_has_a_row"])
    assert not has_test(own, ["test_of_nothing"])
    assert not has_test(own, ["FAULTS"])

# SPDX-License-Identifier: Apache-2.0
"""One of ONNX's backend tests for each operator; the package as a command runs all of them."""

import pytest

pytest.importorskip("onnxruntime")

from . import running
from .cases import FLOAT, load_cases
from .running import CRASHED, PASSED, REFUSED, run_cases

UNSUPPORTED = {"TfIdfVectorizer"}
"""Operators of tensors that are refused."""

OF_GRAPHS = {"If", "Loop", "Scan"}
"""Operators whose cases have graphs of their own, which have tests of their own."""

BESIDE_RUNTIME = (
    *("test_PReLU_1d_multiparam", "test_bitcast_bool_to_uint8", "test_hannwindow_expanded"),
    *("test_loop11", "test_reduce_max_empty_set_bool", "test_split_to_sequence_1"),
)
"""Cases of other types or numbers of outputs, or that ONNX Runtime lacks."""

SHAPED = ("Expand", "Reshape", "Resize", "Slice", "Tile", "TopK")


def first_cases(*, supported: bool) -> list[str]:
    """The first case of each operator."""
    found: dict[str, str] = {}
    for name, case in load_cases().items():
        wanted = (case.operator in UNSUPPORTED) is not supported
        if case.group == FLOAT and wanted and case.operator not in OF_GRAPHS:
            found.setdefault(case.operator, name)
    return list(found.values())


@pytest.fixture(scope="module")
def outcomes():
    return [each for each in run_cases(first_cases(supported=True)) if each.runtime]


def test_a_case_of_each_operator_gives_the_outputs_that_onnx_expects(outcomes):
    assert [each for each in outcomes if each.status != PASSED] == []
    assert len(outcomes) > 120


def test_operators_whose_shape_depends_on_an_input_were_among_them(outcomes):
    assert {each.operator for each in outcomes} >= set(SHAPED)


def test_cases_of_sequences_loops_and_old_operators_are_right():
    assert [each for each in run_cases(BESIDE_RUNTIME) if each.status != PASSED] == []


def test_what_is_not_supported_is_refused_by_the_name_of_its_operator():
    refused = list(run_cases(first_cases(supported=False)))
    assert {each.operator for each in refused} == UNSUPPORTED
    for each in refused:
        assert each.status == REFUSED
        assert f"({each.operator}) cannot be imported: the operator is not supp" in each.detail


def test_a_crash_costs_one_case(monkeypatch):
    # A worker ends with an exception where it is asked for a case that there is not.
    cases = {**load_cases(), "missing": load_cases()["test_abs"]}
    monkeypatch.setattr(running, "load_cases", lambda: cases)
    crashed, passed = run_cases(["missing", "test_abs"], workers=1)
    assert (crashed.status, passed.status) == (CRASHED, PASSED)
    assert "status 1" in crashed.detail

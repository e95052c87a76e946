# SPDX-License-Identifier: Apache-2.0
"""Options are declared once, in the signatures and docstrings of ``tune`` and ``tune_kernel``."""

import inspect
import runpy
from pathlib import Path

import pytest

from tvm_droplet_ms import tune, tune_kernel
from tvm_droplet_ms.cli import main
from tvm_droplet_ms.cli.options import OPTIONS, parameters

DOCS = Path(__file__).parents[2] / "docs"
TABLES = runpy.run_path(str(DOCS / "option_tables.py"))


@pytest.mark.parametrize("function", [tune, tune_kernel])
def test_the_declarations_are_read_as_python_reads_them(function):
    declared = parameters(function.__name__)
    expected = [
        one
        for one in inspect.signature(function).parameters.values()
        if one.kind is one.KEYWORD_ONLY
    ]
    assert list(declared) == [one.name for one in expected]
    assert [eval(one.code) for one in declared.values()] == [one.default for one in expected]
    assert all(one.meaning for one in declared.values())
    assert declared["patience"].default == "no limit"


@pytest.mark.parametrize("function", ["tune", "tune_kernel"])
def test_the_table_of_the_page_is_what_is_declared(function):
    """After a change: python docs/option_tables.py."""
    page = DOCS / TABLES["PAGES"][function]
    assert page.read_text(encoding="utf-8") == TABLES["written"](page, function)


def test_the_help_has_every_option_with_its_meaning(capsys):
    with pytest.raises(SystemExit):
        main(["tune", "--help"])
    printed = " ".join(capsys.readouterr().out.split())
    for option in OPTIONS:
        assert option.flag in printed and " ".join(option.help.split()[:4]) in printed
    assert "(default: 64)" in printed and "(default: 5.0)" in printed
    assert (
        "Number of trials without a gain after which the run ends. (default: no limit)" in printed
    )


def printed_help(command: str, capsys) -> str:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    return " ".join(capsys.readouterr().out.split())


def test_the_help_speaks_of_options_as_they_are_given(capsys):
    """A switch is told by what it switches on, minutes in minutes, and no parameter is named."""
    printed = printed_help("tune", capsys)
    assert "--allow-winograd Models: Compute convolutions by Winograd's algorithm" in printed
    assert "--minutes MINUTES Wall-clock time in minutes for everything" in printed
    assert "Wall-clock time in minutes of the tuning" in printed
    assert "0 applies the records of --work-dir" in printed
    assert "1e-3 with --allow-winograd" in printed
    names = {name for each in ("tune", "tune_kernel") for name in parameters(each) if "_" in name}
    assert names >= {"work_dir", "in_place", "time_budget_s"}
    of_python = ["in seconds", "None", "True", "False", "mapping", "`", *names]
    assert not [word for word in of_python if word in printed]


def test_the_help_of_resume_has_no_defaults(capsys):
    printed = printed_help("resume", capsys)
    assert "--minutes MINUTES" in printed and "default:" not in printed


def test_the_table_says_what_a_switch_sets():
    table = TABLES["table"]("tune")
    assert "| `exact` | `--allow-winograd` sets `False` | `True` |" in table
    assert '| `precision` | `--allow-bfloat16` sets `"bfloat16"` | `"float32"` |' in table
    assert "| `time_budget_s` | `--minutes` in minutes | `300.0` | Wall-clock time in s" in table

# SPDX-License-Identifier: Apache-2.0
"""The code in ``docs/`` runs as copied, and its commands take their options."""

import argparse
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doc_programs import Block, blocks, run_program

from tvm_droplet_ms import cli

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs/results").glob("*.md")),
]
OWN = "tvm_droplet_ms"

# README's programs have a test of their own.
PROGRAMS = [block for page in PAGES[1:] for block in blocks(page, "python")]
RUN = [block for block in PROGRAMS if not block.why_not_run]
COMMANDS = [block for page in PAGES for block in blocks(page, "bash") if not block.why_not_run]


def commands(text: str) -> list[list[str]]:
    """The commands of a block, as a shell splits them."""
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.mark.parametrize("block", RUN, ids=str)
def test_a_program_runs_as_copied(block: Block, tmp_path: Path):
    run_program(block.text, tmp_path)


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_a_program_is_python(block: Block):
    compile(block.text, str(block), "exec")


def test_programs_are_found_and_most_are_run():
    assert len(PROGRAMS) >= 7
    assert len(RUN) >= 3


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_the_network_of_the_readme_runs_in_cpp(tmp_path: Path):
    (network,) = [b for b in blocks(PAGES[0], "python") if "network.so" in b.text]
    run_program(network.text, tmp_path)
    bundle = tmp_path / "served"
    assert cli.main(["bundle", str(tmp_path / "network.so"), "--out", str(bundle)]) == 0
    build = re.search(r"`(cmake .* build/main) ", (bundle / "README.md").read_text())
    assert build is not None
    done = subprocess.run(
        ["bash", "-euc", f"{build[1]} 1x784"],
        cwd=bundle,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    # All weights and biases are 1, all inputs 0.
    assert done.stdout.splitlines()[-1] == f"10 numbers, the first is {256 + 1}"


class Parsed(Exception):
    """The arguments were understood, and nothing is to run."""


def parse_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have programs end as soon as they have parsed their arguments."""
    parse = argparse.ArgumentParser.parse_args

    def parse_and_end(parser: argparse.ArgumentParser, *arguments: object) -> argparse.Namespace:
        parse(parser, *arguments)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_and_end)


@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_commands_take_their_options(block: Block, monkeypatch: pytest.MonkeyPatch):
    parse_only(monkeypatch)
    for words in commands(block.text):
        if words[0] == "droplet-ms":
            with pytest.raises(Parsed):
                cli.main(words[1:])
        elif words[:2] == ["python", "-m"] and words[2].startswith(OWN):
            monkeypatch.setattr(sys, "argv", words[2:])
            # Another test may have imported it; runpy warns of that.
            monkeypatch.delitem(sys.modules, words[2], raising=False)
            with pytest.raises(Parsed):
                runpy.run_module(words[2], run_name="__main__")


def test_commands_are_found():
    named = [words[0] for block in COMMANDS for words in commands(block.text)]
    assert named.count("droplet-ms") >= 15 and named.count("python") >= 10


@pytest.mark.parametrize(
    "arguments", [["tune", "dense", "--no-such-option"], ["no-such-command"], ["compare"]]
)
def test_a_command_that_is_wrong_is_found(arguments, monkeypatch, capsys):
    parse_only(monkeypatch)
    with pytest.raises(SystemExit):
        cli.main(arguments)

# SPDX-License-Identifier: Apache-2.0
"""The code in ``docs/`` runs as copied, and its commands take their options."""

import argparse
import os
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


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_cpp_program_builds_and_runs(tmp_path: Path):
    page = ROOT / "docs" / "models.md"
    (build,) = [block for block in blocks(page, "bash") if "g++" in block.text]
    (network,) = [b for b in blocks(PAGES[0], "python") if "network.so" in b.text]
    run_program(network.text, tmp_path)
    shutil.copy(ROOT / "examples" / "run_model.cc", tmp_path)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    ran = subprocess.run(
        ["bash", "-euc", build.text],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    # All weights, biases and inputs are 1.
    assert float(ran.stdout) == (784 + 1) * 256 + 1


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

# SPDX-License-Identifier: Apache-2.0
"""Write the patch that offers the published search to TVM: ``python upstream/write_patch.py OUT``.

The new files are those of ``search_strategy/published``, with TVM's license header and relative
imports. The edits are made to the files of the installed TVM, so that the patch fails to be written
where they do not fit. Apply it with ``git apply OUT`` in TVM's checkout.
"""

import argparse
import difflib
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
PUBLISHED = HERE.parent / "tvm_droplet_ms" / "search_strategy" / "published"
TESTS = HERE / "tests"

STRATEGIES = "python/tvm/s_tir/meta_schedule/search_strategy"
TVM_TESTS = "tests/python/s_tir/meta_schedule"
META_SCHEDULE = "tvm.s_tir.meta_schedule"

OWN_MODULES = {
    "EvolutionarySearch": "evolutionary_search",
    "MeasureCandidate": "search_strategy",
    "PySearchStrategy": "search_strategy",
    "SearchStrategy": "search_strategy",
}
"""Modules of TVM's package of search strategies: the package is not made when a strategy is."""


class Edit(NamedTuple):
    """A text of a file of TVM, and what takes its place."""

    path: str
    old: str
    new: str


EDITS = (
    Edit(
        f"{STRATEGIES}/__init__.py",
        "from .evolutionary_search import EvolutionarySearch\n",
        "from .droplet import DropletSearch\nfrom .evolutionary_search import EvolutionarySearch\n",
    ),
    Edit(
        f"{STRATEGIES}/search_strategy.py",
        """            "replay-trace",
            "evolutionary",
        ],
""",
        """            "replay-trace",
            "evolutionary",
            "droplet",
        ],
""",
    ),
    Edit(
        f"{STRATEGIES}/search_strategy.py",
        """        kind: Literal[
            "evolutionary",
""",
        """        kind: Literal[
            "droplet",
            "evolutionary",
""",
    ),
    Edit(
        f"{STRATEGIES}/search_strategy.py",
        """            EvolutionarySearch,
            ReplayFunc,
            ReplayTrace,
        )

        if kind""",
        """            DropletSearch,
            EvolutionarySearch,
            ReplayFunc,
            ReplayTrace,
        )

        if kind == "droplet":
            return DropletSearch(*args, **kwargs)
        if kind""",
    ),
)
"""``strategy="droplet"``: the name of the class, the types of the argument, and the choice."""


def main() -> None:
    """Write the patch to the file that is named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT", help="the patch to write")
    arguments = parser.parse_args()
    arguments.out.write_text("".join(patch()))


def patch() -> Iterator[str]:
    """The patch, file by file."""
    for path, text in new_files().items():
        yield f"diff --git a/{path} b/{path}\nnew file mode 100644\n"
        yield from _diff("/dev/null", f"b/{path}", "", text)
    for path, (before, after) in edited_files().items():
        yield f"diff --git a/{path} b/{path}\n"
        yield from _diff(f"a/{path}", f"b/{path}", before, after)


def new_files() -> dict[str, str]:
    """The texts of the new files, by their paths in TVM's checkout."""
    files = {
        f"{STRATEGIES}/{_new_name(source.stem)}.py": for_tvm(source.read_text())
        for source in sorted(PUBLISHED.glob("*.py"))
        if source.stem != "__init__"
    }
    for source in sorted(TESTS.glob("test_*.py")):
        files[f"{TVM_TESTS}/{source.name}"] = with_license(source.read_text())
    return files


def edited_files() -> dict[str, tuple[str, str]]:
    """The texts of the edited files, before and after."""
    files: dict[str, tuple[str, str]] = {}
    for edit in EDITS:
        before = _installed(edit.path).read_text()
        _, now = files.get(edit.path, (before, before))
        if now.count(edit.old) != 1:
            sys.exit(f"{edit.path} of the installed TVM does not have, once: {edit.old!r}")
        files[edit.path] = before, now.replace(edit.old, edit.new)
    return files


def for_tvm(text: str) -> str:
    """A source file of the published search as one of TVM's."""
    text = re.sub(r"^( *)from \.(\w+) import", _own_import, text, flags=re.MULTILINE)
    pattern = rf"^( *)from {re.escape(META_SCHEDULE)}([.\w]*) import ([\w, ]+)$"
    text = re.sub(pattern, _relative_import, text, flags=re.MULTILINE)
    return _formatted(with_license(text))


def with_license(text: str) -> str:
    """A source file with TVM's license header in place of its own."""
    return _license() + re.sub(r"\A(#.*\n)+\n?", "", text)


def _new_name(module: str) -> str:
    """The name of a module of the published search in TVM."""
    return "droplet" if module == "strategy" else f"droplet_{module}"


def _own_import(found: re.Match[str]) -> str:
    return f"{found[1]}from .{_new_name(found[2])} import"


def _relative_import(found: re.Match[str]) -> str:
    indent, module, names = found.groups()
    if module == ".search_strategy":
        return "\n".join(f"from .{OWN_MODULES[name]} import {name}" for name in names.split(", "))
    # ``TuneContext`` is the only name that is imported from the package itself.
    return f"{indent}from ..{module.removeprefix('.') or 'tune_context'} import {names}"


def _formatted(text: str) -> str:
    """A file with its imports in order, as TVM's ``ruff`` wants it."""
    options = ["--config", 'lint.isort.known-first-party=["tvm"]', "--config", "line-length=100"]
    for command in (["check", "--quiet", "--fix", "--select=I"], ["format", "--quiet"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, *options, "--isolated", "-"],
            input=text,
            text=True,
            capture_output=True,
        )
        if done.returncode:
            sys.exit(f"ruff {command[0]} failed: {done.stderr or done.stdout}")
        text = done.stdout
    return text


def _license() -> str:
    """The license header of TVM's files."""
    text = _installed(f"{STRATEGIES}/__init__.py").read_text()
    found = re.match(r"(#.*\n)+", text)
    assert found is not None
    return found[0]


def _installed(path: str) -> Path:
    """A file of TVM's checkout in the installed package."""
    spec = find_spec("tvm")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("TVM is not installed")
    return Path(spec.submodule_search_locations[0]) / path.removeprefix("python/tvm/")


def _diff(source: str, target: str, before: str, after: str) -> Iterator[str]:
    return difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), source, target
    )


if __name__ == "__main__":
    main()

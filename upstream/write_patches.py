# SPDX-License-Identifier: Apache-2.0
"""Write the patches that are offered to TVM: ``python upstream/write_patches.py OUT_DIR``.

``series.py`` says what each of them changes. The new files are those of
``search_strategy/published``, with TVM's license header and relative imports. The edits are made to
the files of the installed TVM, so that the patches fail to be written where they do not fit. Apply
them with ``git apply`` in TVM's checkout, in order; those of bugs need no other.
"""

import argparse
import difflib
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from series import OWN_EDITS, SERIES, STRATEGIES, Edit, Patch

HERE = Path(__file__).resolve().parent
PUBLISHED = HERE.parent / "tvm_droplet_ms" / "search_strategy" / "published"
TESTS = HERE / "tests"

META_SCHEDULE = "tvm.s_tir.meta_schedule"

OWN_MODULES = {
    "EvolutionarySearch": "evolutionary_search",
    "MeasureCandidate": "search_strategy",
    "PySearchStrategy": "search_strategy",
    "SearchStrategy": "search_strategy",
}
"""Modules of TVM's package of search strategies: the package is not made when a strategy is."""


def main() -> None:
    """Write the patches into the directory that is named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT_DIR", help="the directory of the patches")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for number, patch in enumerate(SERIES, start=1):
        text = "".join([*header(patch, number), *differences(patch)])
        (arguments.out / f"{number:04}-{patch.name}.patch").write_text(text)


def header(patch: Patch, number: int) -> Iterator[str]:
    """The message before the differences, which ``git apply`` skips."""
    yield f"Subject: [PATCH {number}/{len(SERIES)}] {patch.title}\n\n{patch.message}"
    if patch.needs is not None:
        yield f"\nNeeds: {patch.needs}\n"
    yield "---\n"


def differences(patch: Patch) -> Iterator[str]:
    """What a patch changes, file by file."""
    for path, text in new_files(patch).items():
        yield f"diff --git a/{path} b/{path}\nnew file mode 100644\n"
        yield from _diff("/dev/null", f"b/{path}", "", text)
    for path in dict.fromkeys(edit.path for edit in patch.edits):
        before = _installed(path).read_text()
        after = edited(before, [edit for edit in patch.edits if edit.path == path])
        yield f"diff --git a/{path} b/{path}\n"
        yield from _diff(f"a/{path}", f"b/{path}", before, after)


def new_files(patch: Patch) -> dict[str, str]:
    """The texts of a patch's new files, by their paths in TVM's checkout."""
    files = {
        f"{STRATEGIES}/{_new_name(module)}.py": for_tvm(
            edited((PUBLISHED / f"{module}.py").read_text(), OWN_EDITS.get(module, ()))
        )
        for module in patch.modules
    }
    for path in patch.tests:
        files[f"tests/python/{path}"] = with_license((TESTS / path).read_text())
    return files


def edited(text: str, edits: Sequence[Edit]) -> str:
    """A file after some edits. The program ends where one of them does not fit."""
    for edit in edits:
        if text.count(edit.old) != 1:
            sys.exit(f"{edit.path} does not have, once: {edit.old!r}")
        text = text.replace(edit.old, edit.new)
    return text


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

# SPDX-License-Identifier: Apache-2.0
"""The directory of a tuning run."""

import ast
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.target import Target

from .archive import replacing
from .errors import ModelError

SETTINGS = "settings.json"
"""The file that holds a run's target and number of threads."""

EXECUTABLE = "model.so"
"""The file that holds the best complete executable of a model."""

SCHEDULES = "schedules.json"
"""The file that holds the schedules of a model's kernels as Python, by kernel name."""

RESULT = "result.json"
"""The file that holds the result of a kernel."""


def begun_target(work_dir: object, given: object, target: Target) -> Target:
    """The target that a directory's run continues with.

    In earlier versions, "auto" was LLVM's name of this CPU alone, without the features that the
    name leaves out. A run that began with such a target keeps it. ``given``: the target that the
    user passed. ``target``: the target that ``given`` stands for now.
    """
    if given != "auto" or not isinstance(work_dir, str | os.PathLike):
        return target
    try:
        found = read_settings(Path(work_dir, SETTINGS).read_text(encoding="utf-8"))["target"]
    except (OSError, ValueError, LookupError, TypeError):
        return target  # ``open_work_dir`` explains the error.
    now = plain(target.export())
    added = [name for name in now.pop("mattr", []) if not str(name).startswith("+")]
    before = {**now, "mattr": added} if added else now
    return Target(found) if found == before else target


def open_work_dir(work_dir: str | os.PathLike[str] | None, target: Target, threads: int) -> Path:
    """Make the directory, or check that an earlier run had the same target and threads.

    ``work_dir``: the directory. None for a new temporary one, which is kept. ``threads``: threads
    of the runtime. Returns the directory, with its settings and TVM's version in ``settings.json``.
    Raises ``ModelError`` if the directory was made for another target or number of threads, is a
    file, or cannot be made or written.
    """
    if work_dir is None:
        work_dir = tempfile.mkdtemp(prefix="droplet_tune_")
    if not isinstance(work_dir, str | os.PathLike) or not os.fspath(work_dir):
        raise ModelError(f"work_dir is {work_dir!r}: expected a directory, or None for a new one")
    directory = Path(work_dir)
    if directory.exists() and not directory.is_dir():
        raise ModelError(f"work_dir {str(directory)!r} is a file: expected a directory")
    try:
        return _opened(directory, target, threads)
    except OSError as error:
        raise ModelError(unusable(directory, error)) from error


def unusable(work_dir: str | os.PathLike[str], error: OSError) -> str:
    """A sentence about a directory that cannot be made or written."""
    return (
        f"work_dir {os.fspath(work_dir)!r} cannot be used: {error}. What is in it is kept: make "
        "room or permit writing there and run again, or pass another work_dir"
    )


def _opened(directory: Path, target: Target, threads: int) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    settings = {"target": plain(target.export()), "threads": threads}
    path = directory / SETTINGS
    if path.exists():
        _check(path, settings)
    else:
        versions = {"versions": {"apache-tvm": tvm.__version__}}
        with replacing(path) as partial:
            partial.write_text(json.dumps(settings | versions, indent=1), encoding="utf-8")
    return directory


def read_settings(text: str) -> Any:
    """Read the settings from the text of their file. Raises ``ValueError`` if it is not JSON."""
    settings = json.loads(text)
    if isinstance(settings, dict) and "target" in settings:
        settings["target"] = plain(settings["target"])
    return settings


def plain(value: Any) -> Any:
    """Convert an attribute of a target, or all its attributes, to JSON types.

    Files of earlier versions hold lists as the text of tuples, and the host of a target as text.
    """
    if isinstance(value, str) and value.startswith(("(", "{")):
        try:
            return plain(ast.literal_eval(value))
        except (ValueError, SyntaxError, TypeError):
            return value
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(each) for each in value]
    return value if isinstance(value, str | int | float | None) else str(value)


def _check(path: Path, settings: dict[str, object]) -> None:
    try:
        found = read_settings(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is no settings file: {error}; pass another work_dir") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} is no settings file: it holds {found!r}; pass another work_dir")
    for name, value in settings.items():
        if found.get(name) != value:
            raise ModelError(
                f"work_dir {str(path.parent)!r} was made for {name} {found.get(name)}, and this "
                f"run has {value}: pass another work_dir"
            )

# SPDX-License-Identifier: Apache-2.0
"""The model that a work directory holds. Another model would overwrite its executable."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from ..frontends.imported import ModelIdentity
from ..session.archive import replacing
from ..session.errors import ModelError
from ..session.work_dir import EXECUTABLE, RESULT

MODEL = "model.json"
"""The file that names the model and its shapes."""

Shapes: TypeAlias = Mapping[str, Sequence[int]]
"""The extents of inputs by their names."""


def hold_model(work_dir: str | os.PathLike[str], model: ModelIdentity) -> list[str]:
    """Record in a work directory which model it holds; return notes for the user.

    Only the writer of the directory may call this. The same network with other weights continues
    the directory, since its kernels are the same; the executable with the earlier weights is
    renamed. Raises ``ModelError``, which names both models, if the directory holds the executable
    of another network.
    """
    directory = Path(work_dir)
    held, executable = _held(directory), directory / EXECUTABLE
    notes = []
    if (directory / RESULT).exists():
        raise ModelError(
            f"work_dir {str(directory)!r} holds the result of a kernel, and this run tunes the "
            f"model {model.name!r}: pass another work_dir (--work-dir)"
        )
    if held is not None and executable.exists():
        if held.network != model.network:
            raise ModelError(_refusal(directory, held, model))
        if held.weights != model.weights:
            aside = executable.with_stem(f"{executable.stem}-{held.weights[:8]}")
            executable.replace(aside)
            notes.append(
                f"the work directory held {held.name} with other weights, whose executable is "
                f"kept as {aside.name}"
            )
    _write(directory, {**asdict(model), "shapes": _content(directory).get("shapes")})
    return notes


def hold_shapes(work_dir: str | os.PathLike[str], shapes: Sequence[Shapes]) -> list[str]:
    """Record in a work directory, after ``hold_model``, the shapes of its coming executable.

    An existing executable for other shapes is renamed. ``shapes``: for each entry of the library,
    the shapes by input name. Returns notes for the user.
    """
    directory = Path(work_dir)
    content, executable = _content(directory), directory / EXECUTABLE
    before = content.get("shapes")
    now = [{name: list(shape) for name, shape in sorted(each.items())} for each in shapes]
    notes = []
    if before not in (None, now) and executable.exists():
        digest = hashlib.blake2b(json.dumps(before).encode(), digest_size=4).hexdigest()
        aside = executable.with_stem(f"{executable.stem}-{digest}")
        executable.replace(aside)
        notes.append(
            f"the work directory held a library of other shapes, {before}, which is kept as "
            f"{aside.name}"
        )
    _write(directory, {**content, "shapes": now})
    return notes


def what_is_kept(work_dir: str | os.PathLike[str]) -> str:
    """Return the end of a sentence that names the executable that a run without a result keeps."""
    executable = Path(work_dir) / EXECUTABLE
    if not executable.exists():
        return ""
    return f"; {str(executable)!r}, which an earlier run wrote, is kept as it was"


def _held(directory: Path) -> ModelIdentity | None:
    """Return the model of a directory; None if ``MODEL`` does not name one or is damaged."""
    found = _content(directory)
    try:
        return ModelIdentity(str(found["name"]), str(found["network"]), str(found["weights"]))
    except LookupError:
        return None


def _content(directory: Path) -> dict[str, Any]:
    """Return the content of ``MODEL``; empty if the file is missing or damaged."""
    try:
        found = json.loads((directory / MODEL).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(directory: Path, content: Mapping[str, Any]) -> None:
    with replacing(directory / MODEL) as partial:
        partial.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _refusal(directory: Path, held: ModelIdentity, model: ModelIdentity) -> str:
    named = f"{held.name!r}, and this run tunes {model.name!r}"
    if held.name == model.name:
        named = f"{held.name!r}, with other operators or weights of other shapes than this one"
    return (
        f"work_dir {str(directory)!r} holds the result of another model, {named}, which would "
        "overwrite it: pass another work_dir (--work-dir); droplet-ms merge joins the records of "
        "several"
    )

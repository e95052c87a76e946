# SPDX-License-Identifier: Apache-2.0
"""Claims, resumes and removes the work directory of a collection."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..session.archive import replacing

MARKER = "task.json"
"""The file that names the task of a claimed directory."""

CONTENTS = ("artifacts", "log.jsonl", "sample.jsonl", MARKER)
"""The files and folders that a collection writes into its directory."""


class CollectionError(Exception):
    """A collection cannot be started, resumed or completed."""


def claim(directory: Path, task: Mapping[str, str]) -> None:
    """Create a work directory for a task, or check that an existing one belongs to it.

    Raises ``CollectionError`` if the directory holds other files, or the collection of another
    task.
    """
    marker = directory / MARKER
    if marker.exists():
        found = json.loads(marker.read_text())["task"]
        different = [
            f"{name} {found.get(name)!r}, expected {value!r}"
            for name, value in task.items()
            if found.get(name) != value
        ]
        if different:
            raise CollectionError(
                f"{directory} holds measurements of another task: {'; '.join(different)}; name "
                "another work directory, or delete this one"
            )
        return
    created = not directory.exists()
    if not created and (not directory.is_dir() or any(directory.iterdir())):
        raise CollectionError(
            f"{directory} is not empty and was not made by this command; name a new or an empty "
            "directory as the work directory"
        )
    with replacing(marker) as partial:
        partial.write_text(json.dumps({"task": dict(task), "created": created}) + "\n")


def remove(directory: Path) -> None:
    """Delete a collection's files, and the directory too if the collection created it.

    A directory that was not claimed stays unchanged. Other files in a claimed directory stay.
    """
    marker = directory / MARKER
    if not marker.exists():
        return
    created = json.loads(marker.read_text())["created"]
    for name in CONTENTS:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    if created and not any(directory.iterdir()):
        directory.rmdir()


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the entries of a JSON-lines file, and cut off the torn last line of a killed run."""
    if not path.exists():
        return
    text = path.read_text()
    complete, _, torn = text.rpartition("\n")
    if torn:
        path.write_text(complete + "\n" if complete else "")
    for line in complete.splitlines():
        yield json.loads(line)

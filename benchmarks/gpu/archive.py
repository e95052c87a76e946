# SPDX-License-Identifier: Apache-2.0
"""Packs what a machine with a GPU and without a network lacks, in folders small enough to carry.

The archive has this project's packages and the wheels of TVM, its FFI and XGBoost, for the
machine's Python version. Most of it is TVM's compiler library, which has no symbols to strip. The
library is cut into pieces that are compressed, and later decompressed, in parallel. Each folder has
a copy of ``unpack.py``, which stores the folder's files and starts the run once all are there.
"""

import argparse
import hashlib
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from .unpack import COMPILER, MANIFEST, PACKAGES

ROOT = Path(__file__).resolve().parents[2]
OWN = ("tvm_droplet_ms", "benchmarks")
LEFT_OUT = ("tvm/3rdparty/", "xgboost/testing/")
OF_NO_USE = ("__pycache__", "spaces", "samples", "experience")
"""Folders of this project's packages that the run does not read."""

XGBOOST = "xgboost-cpu==3.2.0"
"""The package without CUDA, a twentieth of the size of the package with CUDA."""

PIECES = 16
PLATFORMS = ("2_28", "2_27", "2_24", "2_17")


def main(argv: Sequence[str] | None = None) -> None:
    """Make the archive, and print the size of each folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--python", default="3.12", help="the machine's (default: %(default)s)")
    parser.add_argument(
        "--most", type=float, default=52.0, help="MiB of a folder (default: %(default)g)"
    )
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        for wheel in _download(args.python, Path(folder) / "wheels"):
            with zipfile.ZipFile(wheel) as content:
                names = [n for n in content.namelist() if not n.startswith(LEFT_OUT)]
                content.extractall(site, names)
        for name in OWN:
            ignored = shutil.ignore_patterns(*OF_NO_USE)
            shutil.copytree(ROOT / name, site / name, ignore=ignored)
        words = {"python": args.python, "revision": _revision()}
        pack(site, args.out, int(args.most * 2**20), words)
    for part in sorted(args.out.iterdir()):
        size = sum(path.stat().st_size for path in part.iterdir()) / 2**20
        print(f"{part}: {size:.1f} MiB, Python {args.python}, revision {words['revision']}")


def _download(python: str, folder: Path) -> list[Path]:
    wanted = [f"{name}=={version(name)}" for name in ("apache-tvm", "apache-tvm-ffi")]
    platforms = [f"--platform=manylinux_{name}_x86_64" for name in PLATFORMS]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
    subprocess.run([*command, *platforms, "-d", str(folder), *wanted, XGBOOST], check=True)
    return sorted(folder.glob("*.whl"))


def _revision() -> str:
    """The commit of this project, with "+" if files differ from it; "unknown" outside of Git."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def pack(site: Path, out: Path, most: int, words: Mapping[str, str]) -> None:
    """Pack a folder of packages.

    ``site``: the packages; the compiler library is removed from it. ``out``: the output folder. It
    is replaced, but its compressed pieces of the same library are reused. ``most``: the maximum
    bytes per folder. ``words``: further entries of the manifest for ``unpack``.
    """
    library = (site / COMPILER).read_bytes()
    (site / COMPILER).unlink()
    digest = hashlib.sha256(library).hexdigest()
    files = _pieces(out, digest) or _compressed(library)
    pieces = sorted(files)
    with tempfile.TemporaryFile() as packed:
        with tarfile.open(fileobj=packed, mode="w:xz") as archive:
            archive.add(site, ".")
        packed.seek(0)
        files[PACKAGES] = packed.read()
    manifest = {
        "id": hashlib.sha256(digest.encode() + files[PACKAGES]).hexdigest()[:12],
        "files": sorted(files),
        "pieces": pieces,
        "sha256": digest,
        **words,
    }
    shutil.rmtree(out, ignore_errors=True)
    part, room = 0, 0
    for name in sorted(files, key=lambda name: (name != PACKAGES, name)):
        room -= len(files[name])
        if room < 0:
            part, room = part + 1, most - len(files[name])
            (out / str(part)).mkdir(parents=True)
            (out / str(part) / MANIFEST).write_text(json.dumps(manifest) + "\n")
            shutil.copy(Path(__file__).with_name("unpack.py"), out / str(part))
        (out / str(part) / name).write_bytes(files[name])


def _compressed(library: bytes) -> dict[str, bytes]:
    length = -(-len(library) // PIECES)
    parts = [library[start : start + length] for start in range(0, len(library), length)]
    # LZMA releases the GIL.
    with ThreadPoolExecutor() as threads:
        pieces = list(threads.map(lambda part: lzma.compress(part, preset=6), parts))
    return {f"compiler.{number:02}": piece for number, piece in enumerate(pieces)}


def _pieces(out: Path, digest: str) -> dict[str, bytes]:
    """The pieces of an earlier archive of the same library; empty if there is none."""
    manifests = [json.loads(path.read_text()) for path in out.glob(f"*/{MANIFEST}")]
    if not manifests or any(manifest["sha256"] != digest for manifest in manifests):
        return {}
    found = {path.name: path.read_bytes() for path in out.glob("*/compiler.*")}
    return found if sorted(found) == manifests[0]["pieces"] else {}


if __name__ == "__main__":
    main()

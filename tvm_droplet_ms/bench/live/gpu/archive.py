# SPDX-License-Identifier: Apache-2.0
"""Packs what a machine with a GPU and without a network lacks into one folder, which is carried.

This package, TVM's wheel, its FFI and XGBoost, for the machine's version of Python. TVM's compiler
library is most of it: it is stripped of its symbols, and cut into pieces that are compressed, and
unpacked, at the same time. ``unpack.py``, which is copied beside them, puts it together on the
machine, and names what that is still to have (``unpack.NEEDED``).
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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from .unpack import COMPILER

PACKAGE = Path(__file__).resolve().parents[3]
LEFT_OUT = ("tvm/3rdparty/", "xgboost/testing/")
OF_NO_USE = ("__pycache__", "spaces", "samples", "experience")
"""Folders of this package that the run does not read."""

XGBOOST = "xgboost-cpu==3.2.0"
"""A twentieth of the size of the package with CUDA."""

PIECES = 16
PLATFORMS = ("2_28", "2_27", "2_24", "2_17")


def main(argv: Sequence[str] | None = None) -> int:
    """Make the archive; 1 if it is larger than it may be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="folder; made anew")
    parser.add_argument("--python", default="3.12", help="the machine's (default: %(default)s)")
    parser.add_argument(
        "--most", type=float, default=64.0, help="MiB that can be carried (default: %(default)g)"
    )
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        for wheel in _download(args.python, Path(folder) / "wheels"):
            with zipfile.ZipFile(wheel) as content:
                names = [n for n in content.namelist() if not n.startswith(LEFT_OUT)]
                content.extractall(site, names)
        shutil.copytree(PACKAGE, site / PACKAGE.name, ignore=shutil.ignore_patterns(*OF_NO_USE))
        _strip(site / COMPILER)
        pack(site, args.out, {"python": args.python, "revision": _revision()})
    size = sum(path.stat().st_size for path in args.out.iterdir()) / 2**20
    print(f"{args.out}: {size:.1f} MiB for Python {args.python}, revision {_revision()}")
    if size <= args.most:
        return 0
    print(f"{args.out} has {size:.1f} MiB, expected at most {args.most:g}", file=sys.stderr)
    return 1


def _download(python: str, folder: Path) -> list[Path]:
    wanted = [f"{name}=={version(name)}" for name in ("apache-tvm", "apache-tvm-ffi")]
    platforms = [f"--platform=manylinux_{name}_x86_64" for name in PLATFORMS]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
    subprocess.run([*command, *platforms, "-d", str(folder), *wanted, XGBOOST], check=True)
    return sorted(folder.glob("*.whl"))


def _strip(library: Path) -> None:
    """Remove the symbols that nothing loads by: half of what is to be carried."""
    if shutil.which("strip") is None:
        raise SystemExit("there is no strip to make the archive small with: install binutils")
    subprocess.run(["strip", "--strip-unneeded", str(library)], check=True)


def _revision() -> str:
    """The commit of this package, "+" if files differ from it; "unknown" outside of Git."""
    command = ["git", "-C", str(PACKAGE), "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def pack(site: Path, out: Path, words: dict[str, str]) -> None:
    """Pack a folder of packages.

    ``site``: the packages; the compiler library is taken out of it. ``out``: is made anew.
    ``words``: what ``unpack`` is to say of it.
    """
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    library = (site / COMPILER).read_bytes()
    (site / COMPILER).unlink()
    length = -(-len(library) // PIECES)
    parts = [library[start : start + length] for start in range(0, len(library), length)]
    # LZMA releases the interpreter's lock.
    with ThreadPoolExecutor() as threads:
        pieces = list(threads.map(lambda part: lzma.compress(part, preset=6), parts))
    for number, piece in enumerate(pieces):
        (out / f"compiler.{number:02}").write_bytes(piece)
    with tarfile.open(out / "packages.tar.xz", "w:xz") as archive:
        archive.add(site, ".")
    manifest = {"pieces": len(pieces), "sha256": hashlib.sha256(library).hexdigest(), **words}
    (out / "manifest.json").write_text(json.dumps(manifest) + "\n")
    shutil.copy(Path(__file__).with_name("unpack.py"), out)


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""Packs what a machine with a GPU and without a network lacks, in pieces small enough to carry.

TVM's wheel, its FFI and XGBoost, for the machine's version of Python. TVM's compiler library is
nine tenths of it; it is cut into pieces that are compressed, and unpacked, at the same time. What
is carried in one go is limited, so there are two folders, for two goes; ``unpack.py`` puts the
pieces together. The machine is to have cloudpickle, filelock, ml_dtypes, NumPy, psutil, rich,
SciPy and typing_extensions.
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

COMPILER = Path("tvm/lib/libtvm_compiler.so")
LEFT_OUT = ("tvm/3rdparty/", "xgboost/testing/")
PIECES = 16
PLATFORMS = ("2_28", "2_27", "2_24", "2_17")


def main(argv: Sequence[str] | None = None) -> None:
    """Make the archive, and print what each go carries."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--python", default="3.12", help="the machine's (default: %(default)s)")
    parser.add_argument("--first", type=float, default=50.0, help="MB of the first go")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        for wheel in _download(args.python, Path(folder) / "wheels"):
            with zipfile.ZipFile(wheel) as content:
                names = [n for n in content.namelist() if not n.startswith(LEFT_OUT)]
                content.extractall(site, names)
        pack(site, args.out, int(args.first * 1e6))
    for go in sorted(args.out.iterdir()):
        print(go, f"{sum(path.stat().st_size for path in go.iterdir()) / 1e6:.1f} MB")


def _download(python: str, folder: Path) -> list[Path]:
    wanted = [f"{name}=={version(name)}" for name in ("apache-tvm", "apache-tvm-ffi")]
    platforms = [f"--platform=manylinux_{name}_x86_64" for name in PLATFORMS]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp"]
    subprocess.run(
        [*command, *platforms, "-d", str(folder), *wanted, "xgboost-cpu==3.2.0"], check=True
    )
    return sorted(folder.glob("*.whl"))


def pack(site: Path, out: Path, first: int) -> None:
    """Pack a folder of packages into the folders ``out/1`` and ``out/2``.

    ``site``: the packages; the compiler library is taken out of it. ``out``: is made anew.
    ``first``: bytes that the first folder may have at most.
    """
    shutil.rmtree(out, ignore_errors=True)
    (out / "1").mkdir(parents=True)
    (out / "2").mkdir()
    library = (site / COMPILER).read_bytes()
    (site / COMPILER).unlink()
    length = -(-len(library) // PIECES)
    parts = [library[start : start + length] for start in range(0, len(library), length)]
    # LZMA releases the interpreter's lock.
    with ThreadPoolExecutor() as threads:
        pieces = list(threads.map(lambda part: lzma.compress(part, preset=6), parts))
    room = first
    for number, piece in enumerate(pieces):
        room -= len(piece)
        (out / ("1" if room >= 0 else "2") / f"compiler.{number:02}").write_bytes(piece)
    with tarfile.open(out / "2" / "packages.tar.xz", "w:xz") as archive:
        archive.add(site, ".")
    manifest = {"pieces": len(pieces), "sha256": hashlib.sha256(library).hexdigest()}
    (out / "2" / "manifest.json").write_text(json.dumps(manifest) + "\n")


if __name__ == "__main__":
    main()

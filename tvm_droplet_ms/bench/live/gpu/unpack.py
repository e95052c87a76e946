# SPDX-License-Identifier: Apache-2.0
"""Unpacks what ``archive.py`` packed, on the machine with the GPU, and starts the run there.

A program of its own, of the standard library alone: ``python3 unpack.py CARRIED`` for each folder
but the last, and ``python3 unpack.py CARRIED --run ARGUMENTS`` for the last; the arguments are
those of the run.
"""

import argparse
import ctypes
import glob
import hashlib
import json
import lzma
import os
import shutil
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

COMPILER = Path("tvm/lib/libtvm_compiler.so")
REPOSITORY = Path(__file__).resolve().parents[4]


def main() -> None:
    """Keep what was carried; with ``--run``, unpack all of it and start the run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("carried", type=Path, nargs="?", help="none: what was carried before")
    parser.add_argument("--to", type=Path, default=Path(tempfile.gettempdir()) / "gpu_archive")
    parser.add_argument("--run", nargs=argparse.REMAINDER, help="arguments of the run")
    args = parser.parse_args()
    args.to.mkdir(parents=True, exist_ok=True)
    for path in args.carried.iterdir() if args.carried else ():
        shutil.copy(path, args.to)
    print(f"{args.to} has", *sorted(path.name for path in args.to.iterdir()), flush=True)
    environment = cuda_environment()
    print({name: environment.get(name) for name in ("CUDA_PATH", "LD_LIBRARY_PATH")}, flush=True)
    if args.run is None:
        return
    site = args.to / "site"
    unpack(args.to, site)
    paths = [str(REPOSITORY), str(site), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    environment["PYTHONUNBUFFERED"] = "1"
    command = [sys.executable, "-m", "tvm_droplet_ms.bench.live.gpu", *args.run]
    os.execve(sys.executable, command, environment)


def unpack(folder: Path, site: Path) -> None:
    """Unpack the pieces of a folder; ends the program in words if some are missing or broken."""
    if not (folder / "manifest.json").exists():
        sys.exit(f"{folder} has no manifest.json: carry the last folder of the archive")
    manifest = json.loads((folder / "manifest.json").read_text())
    names = [folder / f"compiler.{number:02}" for number in range(manifest["pieces"])]
    missing = [path.name for path in names if not path.exists()]
    if missing:
        sys.exit(f"{folder} lacks {', '.join(missing)}: carry the first folder, then this one")
    if (site / COMPILER).exists():
        return
    with ThreadPoolExecutor() as threads:
        parts = list(threads.map(lambda path: lzma.decompress(path.read_bytes()), names))
    with tarfile.open(folder / "packages.tar.xz") as archive:
        archive.extractall(site, filter="data")
    library = b"".join(parts)
    if hashlib.sha256(library).hexdigest() != manifest["sha256"]:
        sys.exit(f"the compiler library in {folder} is not the one that was packed")
    (site / COMPILER).write_bytes(library)


def cuda_environment() -> dict[str, str]:
    """The environment with CUDA's headers and libraries where TVM looks for them."""
    environment = dict(os.environ)
    packages = [f"{path}/nvidia/cu13" for path in (sysconfig.get_path("purelib"),)]
    toolkits = ["/usr/local/cuda", *sorted(glob.glob("/usr/local/cuda-13*")), *packages]
    if "CUDA_PATH" not in environment:
        header = _first(f"{path}/include/cuda_runtime.h" for path in toolkits)
        if header is not None:
            environment["CUDA_PATH"] = str(header.parents[1])
    folders = [value for value in (environment.get("LD_LIBRARY_PATH"),) if value]
    roots = [f"{path}/{name}" for path in toolkits for name in ("lib64", "lib")]
    for name, places in (
        ("libcudart.so.13", roots),
        ("libcuda.so.1", ["/usr/local/nvidia/lib64", "/usr/lib/x86_64-linux-gnu"]),
    ):
        found = None if _loads(name) else _first(f"{place}/{name}" for place in places)
        if found is not None:
            folders.append(str(found.parent))
    environment["LD_LIBRARY_PATH"] = os.pathsep.join(folders)
    return environment


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _first(paths: Iterable[str]) -> Path | None:
    return next((Path(path) for path in paths if os.path.exists(path)), None)


if __name__ == "__main__":
    main()

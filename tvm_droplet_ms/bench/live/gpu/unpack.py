# SPDX-License-Identifier: Apache-2.0
"""Unpacks what ``archive.py`` packed, on the machine with the GPU, and starts the run there.

A program of its own, of the standard library alone: ``python3 ARCHIVE/unpack.py ARGUMENTS``; the
arguments are those of the run, such as ``--out gpu``.
"""

import ctypes
import glob
import hashlib
import json
import lzma
import os
import sys
import sysconfig
import tarfile
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

COMPILER = Path("tvm/lib/libtvm_compiler.so")
NEEDED = ("cloudpickle", "filelock", "ml_dtypes", "numpy", "psutil", "rich", "scipy")
NEEDED += ("threadpoolctl", "typing_extensions")
"""The modules that the machine has to have."""


def main() -> None:
    """Unpack, and become the run; ends in words if something is missing."""
    begun = time.monotonic()
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(f"{sys.executable} lacks {', '.join(missing)}: use a Python that has them")
    archive = Path(__file__).resolve().parent
    manifest = json.loads((archive / "manifest.json").read_text())
    python = ".".join(map(str, sys.version_info[:2]))
    if python != manifest["python"]:
        sys.exit(
            f"{archive} is for Python {manifest['python']}, and {sys.executable} is Python "
            f"{python}: pack with --python {python}"
        )
    site = Path(tempfile.gettempdir()) / f"gpu_archive_{manifest['sha256'][:12]}"
    unpack(archive, site)
    environment = cuda_environment()
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(site), environment.get("PYTHONPATH", "")])
    )
    environment["PYTHONUNBUFFERED"] = "1"
    secs = time.monotonic() - begun
    print(f"unpacked revision {manifest['revision']} in {secs:.0f} s", flush=True)
    print({name: environment.get(name) for name in ("CUDA_PATH", "LD_LIBRARY_PATH")}, flush=True)
    command = [sys.executable, "-m", "tvm_droplet_ms.bench.live.gpu", *sys.argv[1:]]
    os.execve(sys.executable, command, environment)


def unpack(archive: Path, site: Path) -> None:
    """Unpack an archive; ends the program in words if pieces are missing or broken."""
    manifest = json.loads((archive / "manifest.json").read_text())
    names = [archive / f"compiler.{number:02}" for number in range(manifest["pieces"])]
    missing = [path.name for path in (*names, archive / "packages.tar.xz") if not path.exists()]
    if missing:
        sys.exit(f"{archive} lacks {', '.join(missing)}: carry all of it")
    with tarfile.open(archive / "packages.tar.xz") as packages:
        packages.extractall(site, filter="data")
    if (site / COMPILER).exists():
        return
    with ThreadPoolExecutor() as threads:
        parts = list(threads.map(lambda path: lzma.decompress(path.read_bytes()), names))
    library = b"".join(parts)
    if hashlib.sha256(library).hexdigest() != manifest["sha256"]:
        sys.exit(f"the compiler library in {archive} is not the one that was packed")
    unfinished = site / COMPILER.with_suffix(".part")
    unfinished.write_bytes(library)
    unfinished.replace(site / COMPILER)


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

# SPDX-License-Identifier: Apache-2.0
"""Stores the folders of ``archive.py`` on the machine with the GPU, and starts the run there.

This standalone program uses only the standard library. Each folder of the archive has a copy: run
``python3 FOLDER/unpack.py ARGUMENTS`` for one folder after the other. The run starts once all
folders are stored. ARGUMENTS are the arguments of the run, such as ``--out gpu``.
"""

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
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

COMPILER = Path("tvm/lib/libtvm_compiler.so")
MANIFEST, PACKAGES = "manifest.json", "packages.tar.xz"
NEEDED = (
    *("cloudpickle", "filelock", "ml_dtypes", "numpy", "psutil", "rich", "scipy", "threadpoolctl"),
    "typing_extensions",
)
"""Modules that the machine must have."""


def main() -> None:
    """Store a folder. Once all are stored, unpack them and replace this process by the run."""
    begun = time.monotonic()
    folder = Path(__file__).resolve().parent
    manifest = json.loads((folder / MANIFEST).read_text())
    refuse_unfit(manifest["python"])
    kept = Path(tempfile.gettempdir()) / f"gpu_archive_{manifest['id']}"
    kept.mkdir(exist_ok=True)
    for path in folder.iterdir():
        shutil.copy(path, kept)
    missing = [name for name in manifest["files"] if not (kept / name).exists()]
    if missing:
        print(f"kept in {kept}; the run starts with the folder that has {', '.join(missing)}")
        return
    unpack(kept, kept / "site")
    environment = cuda_environment()
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(kept / "site"), environment.get("PYTHONPATH", "")])
    )
    # Import the unpacked package, not a package in the current folder.
    environment |= {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
    secs = time.monotonic() - begun
    print(f"unpacked revision {manifest['revision']} in {secs:.0f} s", flush=True)
    print({name: environment.get(name) for name in ("CUDA_PATH", "LD_LIBRARY_PATH")}, flush=True)
    command = [sys.executable, "-m", "benchmarks.gpu", *sys.argv[1:]]
    os.execve(sys.executable, command, environment)


def refuse_unfit(python: str) -> None:
    """Exit with a message if this Python has another version or lacks a module."""
    own = ".".join(map(str, sys.version_info[:2]))
    if own != python:
        sys.exit(
            f"the archive is for Python {python}, and {sys.executable} is Python {own}: pack with "
            f"--python {own}"
        )
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        sys.exit(f"{sys.executable} lacks {', '.join(missing)}: use a Python that has them")


def unpack(kept: Path, site: Path) -> None:
    """Unpack a complete archive; exit with a message if the compiler library is corrupt."""
    manifest = json.loads((kept / MANIFEST).read_text())
    shutil.rmtree(site, ignore_errors=True)
    with tarfile.open(kept / PACKAGES) as packages:
        packages.extractall(site, filter="data")
    pieces = [kept / name for name in manifest["pieces"]]
    with ThreadPoolExecutor() as threads:
        parts = list(threads.map(lambda path: lzma.decompress(path.read_bytes()), pieces))
    library = b"".join(parts)
    if hashlib.sha256(library).hexdigest() != manifest["sha256"]:
        sys.exit(f"the compiler library in {kept} is not the one that was packed: carry it again")
    (site / COMPILER).write_bytes(library)


def cuda_environment() -> dict[str, str]:
    """The environment in which TVM finds CUDA's headers and libraries."""
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

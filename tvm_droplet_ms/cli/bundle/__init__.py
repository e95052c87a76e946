# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms bundle``. Imports no TVM."""

import argparse
import importlib.util
import shutil
from pathlib import Path
from typing import Any

from ..arguments import command, concerns, fail

_HERE = Path(__file__).parent
_RUNTIME = _HERE.parents[1] / "runtime"

_FILES = ("droplet_model.h", "main.cc", "CMakeLists.txt", "Dockerfile", "main.py.in", "README.md")
"""The files of a bundle that are the same for each model."""


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    bundle = command(commands, "bundle", _run, "collect what a server needs to run a tuned model")
    bundle.add_argument("model", metavar="MODEL.so", help="the library of a tuned model")
    bundle.add_argument("--out", required=True, metavar="DIR", help="the new directory")


def _run(options: argparse.Namespace) -> int:
    """Write a directory with a tuned model, TVM's two runtime libraries, a Python module, and a
    C++ header, each with an example. It needs no compiler and no other part of this package."""
    from ...runtime import SessionError

    try:
        size = write_bundle(Path(options.model), Path(options.out))
    except SessionError as error:
        return fail("bundle", error)
    except OSError as error:
        if not concerns(error, options.out):
            return fail("bundle", error)
        return fail("bundle", f"{error}: make room or permit writing there, or pass another --out")
    print(f"{options.out}: {size / 1e6:.1f} MB; its README.md says how to run it")
    return 0


def write_bundle(model: Path, out: Path) -> int:
    """Write a bundle; return its size in bytes.

    Raises ``SessionError`` if the file is not a library of a tuned model, if the directory has
    files already, or if apache-tvm is not installed as packages.
    """
    from ...runtime import SessionError
    from ...runtime.loading import check_alone

    check_alone(model)
    if out.exists() and any(out.iterdir()):
        raise SessionError(f"--out {out} has files already: name a new directory")
    tvm, ffi = _package("tvm"), _package("tvm_ffi")
    for folder in ("lib", "droplet_runtime", "include"):
        (out / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(model, out / "model.so")
    for library in ("libtvm_runtime.so", "libtvm_runtime_extra.so"):
        if (tvm / "lib" / library).exists():
            shutil.copy(tvm / "lib" / library, out / "lib")
    shutil.copy(ffi / "lib/libtvm_ffi.so", out / "lib")
    for module in sorted(_RUNTIME.glob("*.py")):
        shutil.copy(module, out / "droplet_runtime")
    for headers in ("tvm", "dlpack"):
        shutil.copytree(ffi / "include" / headers, out / "include" / headers)
    for name in _FILES:
        shutil.copy(_HERE / name, out / name.removesuffix(".in"))
    return sum(file.stat().st_size for file in out.rglob("*") if file.is_file())


def _package(name: str) -> Path:
    from ...runtime import SessionError

    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise SessionError(f"the package {name} is not installed: pip install 'apache-tvm>=0.27'")
    return Path(spec.submodule_search_locations[0])

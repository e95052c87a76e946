# SPDX-License-Identifier: Apache-2.0
"""Versions of the installed packages, and a check that rejects versions known to crash."""

import re
from importlib import metadata

FIRST_CRASHING_FFI = (0, 1, 15)
"""First release with which building a ``TuneContext`` of apache-tvm 0.27 segfaults in
``ToJSONGraph``; 0.1.14.post0 and 0.1.14.post1 work."""


def package_version(package: str) -> str:
    """Return the version of an installed package, or "not from a package" for a source build."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not from a package"


def _release(version: str) -> tuple[int, ...]:
    """Return the release numbers: (0, 1, 15) for ``"0.1.15.post2"`` and ``"0.1.15rc1"``."""
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match.group().split(".")) if match else ()


def check_versions() -> None:
    """Raise if the installed versions of apache-tvm and apache-tvm-ffi crash MetaSchedule.

    Does nothing if either is not installed as a Python distribution (a source build). Raises
    ``ImportError``, which names both versions and the command that installs working versions.
    """
    try:
        tvm = metadata.version("apache-tvm")
        ffi = metadata.version("apache-tvm-ffi")
    except metadata.PackageNotFoundError:
        return
    if _release(ffi) >= FIRST_CRASHING_FFI and _release(tvm) <= (0, 27, 0):
        raise ImportError(
            f"apache-tvm {tvm} with apache-tvm-ffi {ffi} crashes MetaSchedule (a segmentation "
            "fault when a TuneContext is built). Expected apache-tvm-ffi below 0.1.15: "
            "pip install 'apache-tvm-ffi>=0.1.14.post0,<0.1.15'"
        )

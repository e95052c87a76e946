# SPDX-License-Identifier: Apache-2.0
"""What a tuned library says about itself: names, types, shapes, threads, CPU. Imports no TVM.

The description is JSON text behind the end of the shared library, followed by its length and a
mark. The dynamic loader ignores it.
"""

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .errors import SessionError
from .shapes import Bucket, Buckets

_MARK = b"droplet1"
_END = struct.Struct("<Q8s")

_CPU_FLAGS = {
    "avx2": "avx2",
    "fma": "fma",
    "f16c": "f16c",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512vnni": "avx512_vnni",
    "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16",
    "avxvnni": "avx_vnni",
    "amx-tile": "amx_tile",
    "amx-int8": "amx_int8",
    "amx-bf16": "amx_bf16",
}
"""The vector extensions of x86: LLVM's name, and Linux's name in ``/proc/cpuinfo``."""


@dataclass(frozen=True)
class TensorInfo:
    """An input or an output.

    Parameters
    ----------
    name : str
        Its name.
    dtype : str
        NumPy's or ml_dtypes' name of its type.
    extents : tuple[str | None, ...]
        For each axis, the name that the model gives its extent, None if it gives none. Empty if
        the model names none.
    """

    name: str
    dtype: str
    extents: tuple[str | None, ...] = ()


@dataclass(frozen=True)
class LibraryInfo:
    """The description of a tuned library.

    Parameters
    ----------
    model : str
        The model's name.
    digest : str
        A digest of the model's operators and weights.
    inputs, outputs : tuple[TensorInfo, ...]
        In the order of the library's functions.
    buckets : Buckets
        The tuned shapes; ``functions`` are in the same order.
    functions : tuple[str, ...]
        The library's function for each of the shapes.
    threads : int
        The number of threads tuned for.
    why_not_padded : str
        Why inputs of other extents are refused; "" if they are padded with zeros to the next shape,
        and the outputs cut back.
    written : tuple[int, ...]
        The inputs that the functions change.
    aliases : tuple[tuple[int, int | None], ...] | None
        The outputs whose memory is that of an input, with the input's index, or of a constant, with
        None: they are copied before the caller gets them. None: unknown, all outputs are copied.
    cpu_flags : tuple[str, ...]
        The flags of ``/proc/cpuinfo`` that the code needs.
    target : str
        TVM's target as text.
    versions : Mapping[str, str]
        The version of each package that made the library.
    """

    model: str
    digest: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    buckets: Buckets
    functions: tuple[str, ...] = ("main",)
    threads: int = 1
    why_not_padded: str = "it has one shape"
    written: tuple[int, ...] = ()
    aliases: tuple[tuple[int, int | None], ...] | None = None
    cpu_flags: tuple[str, ...] = ()
    target: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def refusal(self, flags: "frozenset[str] | None") -> str:
        """Return why a CPU with these flags cannot run the library; "" if it can.

        ``flags``: None if they are unknown.
        """
        missing = [] if flags is None else [flag for flag in self.cpu_flags if flag not in flags]
        if not missing:
            return ""
        return (
            f"the library of {self.model!r} was tuned for a CPU with {', '.join(missing)}, which "
            "this one lacks: tune the model on this machine"
        )


def flags_of_features(features: "set[str]") -> tuple[str, ...]:
    """Linux's flags of the vector extensions among LLVM's feature names."""
    return tuple(flag for name, flag in _CPU_FLAGS.items() if name in features)


def cpu_flags() -> "frozenset[str] | None":
    """The flags of this CPU as Linux gives them; None where it gives none."""
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return None


def append_info(path: str | os.PathLike[str], info: LibraryInfo) -> None:
    """Write the description behind the end of a library, in place of one that is there."""
    content = json.dumps(asdict(info), separators=(",", ":")).encode()
    with open(path, "r+b") as file:
        end = os.fstat(file.fileno()).st_size - len(_tail(file.fileno()))
        file.seek(end)
        file.write(content + _END.pack(len(content), _MARK))
        file.truncate()


def read_info(path: str | os.PathLike[str]) -> LibraryInfo:
    """Read the description of a library.

    Raises ``SessionError`` if the file cannot be read, or holds no description.
    """
    if not isinstance(path, str | os.PathLike):
        raise SessionError(
            f"a {type(path).__name__} is no path: expected that of a library, such as 'model.so'"
        )
    try:
        with open(path, "rb") as file:
            tail = _tail(file.fileno())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SessionError(
            f"{os.fspath(path)!r} cannot be read ({reason}): expected a library that "
            "`droplet-ms tune` or `result.export` wrote"
        ) from error
    if not tail:
        raise SessionError(
            f"{os.fspath(path)!r} does not describe itself: expected a library that `droplet-ms "
            "tune` or `result.export` wrote, of this version; tune or export the model again"
        )
    try:
        return _parsed(json.loads(tail[: -_END.size]))
    except (KeyError, TypeError, ValueError) as error:
        raise SessionError(
            f"the description in {os.fspath(path)!r} cannot be read: it is damaged, or of another "
            "version of this package; export the model again"
        ) from error


def _tail(descriptor: int) -> bytes:
    """The description of an open library with its end; empty if there is none."""
    size = os.fstat(descriptor).st_size
    end = os.pread(descriptor, _END.size, max(0, size - _END.size))
    if len(end) < _END.size:
        return b""
    length, mark = _END.unpack(end)
    if mark != _MARK or length > size - _END.size:
        return b""
    return os.pread(descriptor, length + _END.size, size - _END.size - length)


def _parsed(content: Mapping[str, Any]) -> LibraryInfo:
    def shapes(given: Any) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(shape) for shape in given)

    def tensor(given: Any) -> TensorInfo:
        return TensorInfo(given["name"], given["dtype"], tuple(given.get("extents", ())))

    buckets = [
        Bucket(shapes(each["inputs"]), shapes(each["outputs"]))
        for each in content["buckets"]["buckets"]
    ]
    aliases = content["aliases"]
    return LibraryInfo(
        **{
            **content,
            "inputs": tuple(map(tensor, content["inputs"])),
            "outputs": tuple(map(tensor, content["outputs"])),
            "buckets": Buckets(tuple(buckets)),
            "functions": tuple(content["functions"]),
            "written": tuple(content["written"]),
            "aliases": None if aliases is None else tuple((out, source) for out, source in aliases),
            "cpu_flags": tuple(content["cpu_flags"]),
        }
    )

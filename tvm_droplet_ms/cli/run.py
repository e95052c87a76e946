# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms run``. Imports no TVM: the library needs its runtime alone."""

import argparse
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arguments import command, fail, positive

if TYPE_CHECKING:
    import numpy as np

    from ..runtime import InferenceSession


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    run = command(commands, "run", _run, "run a tuned model on arrays")
    run.add_argument("model", metavar="MODEL.so", help="the library of a tuned model")
    add_inputs(run)
    run.add_argument("--out", default=".", metavar="DIR", help="where to write (default: here)")


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that runs a library."""
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help="an input as .npy, or several as .npz; without NAME for the only input",
    )
    parser.add_argument("--threads", type=positive, help="default: as the model was tuned for")


def _run(options: argparse.Namespace) -> int:
    """Run a library that `droplet-ms tune` wrote, and write each output as NAME.npy. Without
    --input, print the inputs and outputs."""
    from ..runtime import InferenceSession, SessionError

    try:
        session = InferenceSession(options.model, threads=options.threads)
        if not options.input:
            for kind, nodes in (("input", session.get_inputs()), ("output", session.get_outputs())):
                for node in nodes:
                    print(f"{kind} {node.name}: {node.type} {shown(node.shape)}")
            return 0
        outputs = session.run(None, read_inputs(options.input, session))
    except SessionError as error:
        return fail("run", error)
    names = [node.name for node in session.get_outputs()]
    try:
        written = _write(Path(options.out), names, outputs)
    except OSError as error:
        return fail("run", f"{error}: make room or permit writing there, or pass another --out")
    for name, array, path in zip(names, outputs, written, strict=True):
        print(f"{name}: {array.dtype} {shown(array.shape)}, {path}")
    return 0


def read_inputs(files: Sequence[str], session: "InferenceSession") -> dict[str, "np.ndarray"]:
    """Read the files of ``--input``; the session checks names, types and shapes.

    Raises ``SessionError`` for a file that holds no arrays, or that needs a name.
    """
    from ..runtime import SessionError

    names = [node.name for node in session.get_inputs()]
    found: dict[str, np.ndarray] = {}
    for text in files:
        name, equals, file = text.rpartition("=")
        content = _read(file)
        if isinstance(content, Mapping):
            found.update(content)
        elif equals or len(names) == 1:
            found[name if equals else names[0]] = content
        else:
            raise SessionError(
                f"--input {text} does not say which of the inputs {', '.join(names)} it is: pass "
                f"--input {names[0] if names else 'NAME'}={file}"
            )
    return found


def shown(shape: Sequence[int | str | None]) -> str:
    """A shape for people: ``1x3x224x224``, "?" for an extent that may vary."""
    return "x".join("?" if extent is None else str(extent) for extent in shape) or "scalar"


def _read(file: str) -> Any:
    import numpy as np

    from ..runtime import SessionError

    try:
        content = np.load(file)
        return dict(content) if hasattr(content, "files") else content
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or "it holds no arrays"
        raise SessionError(
            f"--input {file} cannot be read ({reason}): expected an .npy or .npz file of "
            "numpy.save or numpy.savez"
        ) from error


def _write(folder: Path, names: Sequence[str], outputs: Sequence["np.ndarray"]) -> list[Path]:
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for name, array in zip(names, outputs, strict=True):
        stem = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
        path, number = folder / f"{stem}.npy", 1
        while path in paths:
            path, number = folder / f"{stem}_{number}.npy", number + 1
        paths.append(path)
        # NumPy's files have no types of ml_dtypes, such as bfloat16: float32 holds their values.
        np.save(path, array.astype("float32") if array.dtype.kind == "V" else array)
    return paths

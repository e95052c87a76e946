# SPDX-License-Identifier: Apache-2.0
"""Checks of the options of ``droplet-ms tune``, beyond their types. Imports no TVM."""

import argparse
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .kernel import is_kernel

if TYPE_CHECKING:
    import numpy as np

OF_MODELS = (
    *("shape", "dim", "shares", "constant", "in_place"),
    *("allow_winograd", "allow_bfloat16", "tolerance", "against"),
)
"""Options that say nothing about a kernel."""

OF_KERNELS = ("target", "target_us", "tracker", "key")
"""Options that say nothing about a model."""

REFERENCES = {".onnx": ("onnxruntime", "onnxruntime"), ".pt2": ("pytorch", "torch")}
"""The library that a file's model is timed beside, and the package that it needs."""


class OptionError(ValueError):
    """Options do not fit each other, or name what is not there; the message says what to do."""


def check_options(options: argparse.Namespace) -> None:
    """Refuse, before anything is tuned, what would fail or be ignored afterwards.

    ``options``: those of ``droplet-ms tune``; directories of earlier versions lack some. Raises
    ``OptionError`` if one does not apply to what is tuned, or ``--out`` cannot be written.
    """
    one, others = ("a kernel", OF_MODELS) if is_kernel(options.model) else ("a model", OF_KERNELS)
    for name in others:
        if (given := getattr(options, name, None)) or given == "":
            raise OptionError(
                f"--{name.replace('_', '-')} does not apply to {one}, which {options.model!r} is: "
                "leave it out"
            )
    _check_against(options)
    if options.out is not None:
        _check_out(Path(options.out))


def _check_against(options: argparse.Namespace) -> None:
    if options.against is None:
        return
    name, package = REFERENCES[Path(options.model).suffix]
    if options.against != name:
        raise OptionError(
            f"--against {options.against} does not apply to {options.model!r}: a model is timed "
            f"beside what it came from, pass --against {name}"
        )
    if find_spec(package) is None:
        raise OptionError(f"--against {name} needs the package {package}: pip install it")


def _check_out(out: Path) -> None:
    if os.path.isdir(out):
        raise OptionError(f"--out {str(out)!r} is a directory: name a file in it")
    if not os.path.isdir(out.parent):
        raise OptionError(
            f"--out {str(out)!r} cannot be written: there is no directory {str(out.parent)!r}"
        )
    if not os.access(out.parent, os.W_OK):
        raise OptionError(
            f"--out {str(out)!r} cannot be written: permit writing in {str(out.parent)!r}"
        )


def by_bucket(
    option: str, pairs: Sequence[tuple[str, Any]]
) -> dict[str, Any] | list[dict[str, Any]]:
    """The values of a repeated option by name; a list of such where a name has several values.

    ``pairs``: each name with its value, or a list of several; of one name the last counts. Raises
    ``OptionError`` if two names have several, but not as many.
    """
    values = dict(pairs)
    several = {name: value for name, value in values.items() if _is_several(option, value)}
    if not several:
        return values
    counts = {name: len(value) for name, value in several.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} for {name}" for name, count in counts.items())
        raise OptionError(f"{option} has {told}: give as many for each, or one for all")
    count = next(iter(counts.values()))
    return [
        {name: value[number] if name in several else value for name, value in values.items()}
        for number in range(count)
    ]


def _is_several(option: str, value: Any) -> bool:
    """True of a list of values: of numbers for an extent, and of shapes for a shape."""
    if option == "--dim":
        return isinstance(value, list)
    return any(isinstance(each, list | tuple) for each in value)


def read_inputs(path: str | None) -> "dict[str, np.ndarray[Any, Any]] | None":
    """The arrays of a file of inputs, by name; None for none.

    ``path``: a file ``.npz``, whose names are those of the inputs. Raises ``OptionError`` if it
    cannot be read, or holds none.
    """
    if path is None:
        return None
    from ..session.archive import READ_ERRORS, load_arrays  # NumPy is not for --help.

    try:
        with open(path, "rb") as file:
            arrays = load_arrays(file)
    except READ_ERRORS as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise OptionError(
            f"--inputs {path!r} cannot be read: {first}; expected a file .npz of "
            "numpy.savez(FILE, NAME=array), with the names of the inputs"
        ) from error
    if not arrays:
        raise OptionError(f"--inputs {path!r} holds no array: expected one by the name of an input")
    return arrays


def trials_left(asked: int | None, spent: int) -> int | None:
    """The trials that are left of a model's; None for no limit."""
    return None if asked is None else max(0, asked - spent)

# SPDX-License-Identifier: Apache-2.0
"""Checks of the options of ``droplet-ms tune``, beyond their types. Imports no TVM."""

import argparse
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..session.archive import READ_ERRORS, load_arrays
from ..session.errors import first_line
from .kernel import is_kernel

if TYPE_CHECKING:
    import numpy as np

OF_MODELS = (
    *("shape", "dim", "shares", "constant", "in_place"),
    *("allow_winograd", "allow_bfloat16", "tolerance", "against"),
)
"""Options that apply to models only."""

OF_KERNELS = ("target", "target_us", "tracker", "key")
"""Options that apply to kernels only."""

REFERENCES = {".onnx": ("onnxruntime", "onnxruntime"), ".pt2": ("pytorch", "torch")}
"""The reference library to time a model against, by file suffix, and the package it needs."""


class OptionError(ValueError):
    """Options conflict or name something that does not exist; the message says what to do."""


def check_options(options: argparse.Namespace) -> None:
    """Refuse, before the tuning, options that would fail or be ignored after it.

    ``options``: the options of ``droplet-ms tune``; directories of earlier versions lack some.
    Raises ``OptionError`` if an option does not apply to the model or kernel, or if ``--out``
    cannot be written.
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
    """The values of a repeated option by name; a list of such dicts if a name has several values.

    ``pairs``: each name with its value or a list of values. The last value of a repeated name
    counts. Raises ``OptionError`` if two names have lists of different lengths.
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
    """True for a list of values: integers for ``--dim``, shapes for ``--shape``."""
    if option == "--dim":
        return isinstance(value, list)
    return any(isinstance(each, list | tuple) for each in value)


def read_inputs(path: str | None) -> "dict[str, np.ndarray[Any, Any]] | None":
    """Read the arrays of an input file, by name; None if there is no file.

    ``path``: an ``.npz`` file that stores each array under its input's name. Raises ``OptionError``
    if it cannot be read or holds no array.
    """
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            arrays = load_arrays(file)
    except READ_ERRORS as error:
        raise OptionError(
            f"--inputs {path!r} cannot be read: {first_line(error)}; expected a file .npz of "
            "numpy.savez(FILE, NAME=array), with the names of the inputs"
        ) from error
    if not arrays:
        raise OptionError(f"--inputs {path!r} holds no array: expected one by the name of an input")
    return arrays


def trials_left(asked: int | None, spent: int) -> int | None:
    """The remaining trials of a model; None for no limit."""
    return None if asked is None else max(0, asked - spent)

# SPDX-License-Identifier: Apache-2.0
"""Loads and tunes the kernels of ``droplet-ms tune``."""

import argparse
import importlib
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .arguments import fail
from .options import MODELS, arguments_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from tvm.ir import IRModule


def find_kernel(text: str) -> "IRModule":
    """Load the kernel that an argument names.

    ``text``: a workload of the package, such as "dense"; ``package.module:function``, a function
    without parameters that returns a ``PrimFunc`` or a module with one; or a ``.json`` file that
    ``tvm.ir.save_json`` wrote. Raises ``ValueError`` if the argument names no kernel. The message
    says what was expected.
    """
    if Path(text).suffix == ".json":
        from tvm.ir import load_json

        try:
            return load_json(Path(text).read_text(encoding="utf-8"))
        # TVM raises errors of many types for text that is not a module.
        except Exception as error:
            raise ValueError(f"{text} holds no module: {error}") from error
    if ":" in text:
        module, _, attribute = text.partition(":")
        # Python adds the working directory to the path for a program, not for an installed command.
        if (directory := os.getcwd()) not in sys.path:
            sys.path.insert(0, directory)
        try:
            return getattr(importlib.import_module(module), attribute)()
        except Exception as error:  # The user's code failed: name the last line of its traceback.
            where = traceback.extract_tb(error.__traceback__)[-1]
            is_own = where.filename == __file__ or where.filename.startswith("<frozen")
            place = "" if is_own else f" ({where.filename}:{where.lineno})"
            reason = str(error).strip() or type(error).__name__
            raise ValueError(f"{text}: {reason}{place}") from error
    from ..bench.definition import UnknownDefinitionError, find_definition

    try:
        return find_definition(text).mod
    except UnknownDefinitionError as error:
        if Path(text).exists():
            raise ValueError(
                f"{text!r} is no file that can be tuned: expected {' or '.join(MODELS)} (a model), "
                "or .json (a kernel that tvm.ir.save_json wrote)"
            ) from error
        raise ValueError(f"{error}; or a file {', '.join(MODELS)} or .json") from error


def tune_one(
    options: argparse.Namespace,
    minutes_left: float,
    inputs: "Mapping[str, np.ndarray[Any, Any]] | None" = None,
) -> int:
    """Tune a kernel with the options of ``droplet-ms tune``; returns the exit status."""
    from ..tuning.kernel import KernelError, KernelInterrupted, tune_kernel

    try:
        given = arguments_of("tune_kernel", options)
        given |= {"time_budget_s": 60.0 * minutes_left, "inputs": inputs, "name": options.model}
        result = tune_kernel(find_kernel(options.model), **given)
    except KernelInterrupted as error:
        print(f"droplet-ms {options.command}: {error}", file=sys.stderr)
        return 130
    except (KernelError, ValueError) as error:
        return fail(options.command, error)
    text = result.as_json() if options.json else str(result)
    interrupted = result.why_ended == "interrupt"
    return hand_over(text, result, options, result.library, interrupted)


class _Exports(Protocol):
    def export(self, path: str) -> None:
        """Write the library."""


def hand_over(
    text: str, result: _Exports, options: argparse.Namespace, library: Path, interrupted: bool
) -> int:
    """Print a result and write its library to ``--out``, if any; returns the exit status.

    ``library``: the path of the library in the work directory, for an error message.
    """
    unwritten = ""
    try:
        print(text, flush=True)
    finally:  # Export even if standard output is closed.
        try:
            if options.out is not None:
                result.export(options.out)
        except OSError as error:
            unwritten = f"--out {options.out!r} could not be written: {error}"
    if unwritten:
        return fail(options.command, f"{unwritten}; the library is in {str(library)!r}")
    return 130 if interrupted else 0

# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms tune``."""

import argparse
import importlib
import logging
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..session.one_writer import SecondWriterError, only_writer
from .arguments import command, concerns, ending_at_once, fail
from .manifest import ManifestError, run_kept
from .options import (
    MODELS,
    OPTIONS,
    OptionError,
    arguments_of,
    check_options,
    is_kernel,
    read_inputs,
)

if TYPE_CHECKING:
    import numpy as np

    from tvm.ir import IRModule

    from ..tuning.result import Latency, TuneResult


@dataclass(frozen=True)
class Spent:
    """The time and trials that a command's runs have used.

    ``secs``: wall-clock seconds. ``known``: the number of records before these runs; None before
    the first run.
    """

    secs: float = 0.0
    trials: int = 0
    known: int | None = None


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    tune = command(commands, "tune", _run, "tune a whole model, or a kernel, for this machine")
    tune.add_argument(
        "model",
        help="a model: a file .onnx, or .pt2 of torch.export.save; or a kernel: a workload of the "
        "package such as dense, package.module:function that returns a PrimFunc, or a file .json "
        "of tvm.ir.save_json",
    )
    for option in OPTIONS:
        option.add_to(tune)


def _run(options: argparse.Namespace) -> int:
    """Tune an ONNX model, an exported PyTorch program, or a single kernel for this machine's CPU,
    a kernel for its GPU too. Of a model there is a complete executable before the first
    measurement. Ctrl-C ends the tuning and keeps the best so far. The outputs are checked against
    those of the untouched model or kernel."""
    return run(options, options.minutes)


def run(options: argparse.Namespace, minutes_left: float, spent: Spent | None = None) -> int:
    """Tune according to the options, and store them in the work directory.

    ``options``: the options of ``droplet-ms tune``. ``minutes_left``: the remaining minutes of the
    command. ``spent``: the time and trials of earlier runs of the command; None for the first run.
    Returns the exit status.
    """
    if not sys.platform.startswith("linux"):
        reason = f"it needs Linux, because its builder and runner do; this is {sys.platform}"
        return fail(options.command, reason)
    try:
        check_options(options)
        inputs = read_inputs(options.inputs)
    except OptionError as error:
        return fail(options.command, error)
    if options.work_dir == "":
        return fail(options.command, "--work-dir is '': expected the name of a directory")
    if options.work_dir is None:
        options.work_dir = tempfile.mkdtemp(prefix="droplet_tune_")
    # Path.is_file raises if the directory lacks search permission.
    if os.path.isfile(options.model):
        options.model = str(Path(options.model).resolve())
    for name in ("inputs", "out"):  # The run may be resumed from another directory.
        if getattr(options, name) is not None:
            setattr(options, name, os.path.abspath(getattr(options, name)))
    kept = {name: value for name, value in vars(options).items() if name not in ("run", "command")}
    spent = spent or Spent()

    def tune() -> int:
        if is_kernel(options.model):  # A kernel's trials count all runs together.
            return tune_one(options, minutes_left, inputs)
        return _tune_model(options, minutes_left, spent.trials, inputs)

    try:
        Path(options.work_dir).mkdir(parents=True, exist_ok=True)
        advice = f"droplet-ms resume {shlex.quote(options.work_dir)}"
        with ending_at_once(advice), only_writer(options.work_dir):
            return run_kept(options.work_dir, kept, tune, spent.secs, spent.known)
    except PermissionError as error:
        return fail(options.command, f"{error}: permit writing there, or pass another --work-dir")
    except (FileExistsError, NotADirectoryError) as error:
        return fail(options.command, f"--work-dir {options.work_dir!r} is no directory: {error}")
    except (ManifestError, SecondWriterError) as error:
        return fail(options.command, error)
    except OSError as error:
        if not concerns(error, options.work_dir):
            return fail(options.command, error)
        return fail(
            options.command,
            f"--work-dir {options.work_dir!r} cannot be used: {error}. What is in it is kept: make "
            "room or permit writing there and run again, or pass another --work-dir",
        )


class StandardError(logging.StreamHandler[Any]):
    """Writes to the current ``sys.stderr``, which a live table replaces."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _tune_model(
    options: argparse.Namespace,
    minutes_left: float,
    spent_trials: int,
    inputs: "Mapping[str, np.ndarray[Any, Any]] | None",
) -> int:
    from ..tuning import tune

    logging.basicConfig(format="%(message)s", handlers=[StandardError()])
    level = logging.WARNING if options.quiet else logging.INFO
    logging.getLogger("tvm_droplet_ms.tuning").setLevel(level)
    try:
        given = arguments_of("tune", options)
        given |= {"time_budget_s": 60.0 * minutes_left, "inputs": inputs}
        given["trials"] = trials_left(options.trials, spent_trials)
        result = tune(options.model, **given)
    except ValueError as error:  # A ModelError, incompatible options, or a damaged database.
        return fail(options.command, error)
    interrupted = result.why_ended == "interrupt"
    library = result.work_dir / "model.so"
    return hand_over(_shown(result, options), result, options, library, interrupted)


def _shown(result: "TuneResult", options: Any) -> str:
    """The text of a result in the format that the options select."""
    from ..tuning.summary import as_json, summary

    beside = [_beside(one) if options.against else {} for one in result.each_shape]
    return as_json(result, beside) if options.json else summary(result, beside)


def _beside(result: Any) -> "Mapping[str, Latency]":
    """The latencies beside the reference; empty, with a message, if it cannot run the model.

    They are an event in the work directory.
    """
    from ..display.displays import tell_event
    from ..tuning.result import shapes_of

    try:
        latencies: Mapping[str, Latency] = result.beside_reference()
    except ValueError as error:  # A ModelError must not lose the result.
        print(f"droplet-ms tune: {error}", file=sys.stderr)
        return {}
    milliseconds = {name: latency.milliseconds for name, latency in latencies.items()}
    content = {"shapes": shapes_of(result.inputs), "milliseconds": milliseconds}
    tell_event(result.work_dir, {"event": "beside", **content})
    return latencies


def trials_left(asked: int | None, spent: int) -> int | None:
    """The remaining trials of a model; None for no limit."""
    return None if asked is None else max(0, asked - spent)


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

# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms tune``."""

import argparse
import logging
import os
import shlex
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..session.one_writer import SecondWriterError, only_writer
from .arguments import (
    StandardError,
    concerns,
    constant,
    dim,
    ending_at_once,
    fail,
    in_place,
    minutes,
    positive,
    seed,
    shape,
    shares,
    stop_gain,
    trials,
)
from .kernel import hand_over, is_kernel, tune_one
from .manifest import ManifestError, run_kept
from .tune_options import OptionError, by_bucket, check_options, read_inputs, trials_left

if TYPE_CHECKING:
    import numpy as np

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
    tune = commands.add_parser(
        "tune",
        help="tune a whole model, or a kernel, for this machine",
        description="Tune an ONNX model, an exported PyTorch program, or a single kernel for this "
        "machine's CPU, a kernel for its GPU too. Of a model there is a complete executable "
        "before the first measurement. Ctrl-C ends the tuning and keeps the best so far. The "
        "outputs are checked against those of the untouched model or kernel.",
    )
    tune.add_argument(
        "model",
        help="a model: a file .onnx, or .pt2 of torch.export.save; or a kernel: a workload of the "
        "package such as dense, package.module:function that returns a PrimFunc, or a file .json "
        "of tvm.ir.save_json",
    )
    tune.add_argument(
        "--shape",
        action="append",
        default=[],
        type=shape,
        metavar="NAME=1,3,224,224",
        help="the shape of an input that the model leaves open; several with | between them make "
        "one library for all; may be repeated",
    )
    tune.add_argument(
        "--dim",
        action="append",
        default=[],
        type=dim,
        metavar="NAME=320",
        help="an extent that the model leaves open by name, in all inputs; several as of --shape; "
        "may be repeated",
    )
    tune.add_argument(
        "--shares",
        type=shares,
        metavar="3,1",
        help="several shapes: the share of time and trials of each (default: equal ones)",
    )
    tune.add_argument(
        "--constant",
        action="append",
        default=[],
        type=constant,
        metavar="NAME=16000",
        help="the value of an input of an ONNX model, or values separated by commas: it is no "
        "input of the tuned model any more; may be repeated",
    )
    tune.add_argument(
        "--in-place",
        action="append",
        default=[],
        type=in_place,
        metavar="INPUT=OUTPUT",
        help="write an ONNX model's output into an input, as past.*=present.*; may be repeated",
    )
    tune.add_argument(
        "--minutes",
        type=minutes,
        default=5.0,
        help="wall-clock time of everything together (default: %(default)s)",
    )
    tune.add_argument(
        "--trials",
        type=trials,
        help="the most measurements (default: no limit; of a kernel 64, earlier ones included)",
    )
    tune.add_argument(
        "--stop",
        type=stop_gain,
        default="auto",
        metavar="SHARE",
        help="end a kernel when its next 32 trials are expected to gain less than this share of "
        "its time, such as 0.005; `none` for when its trials or the minutes are spent (default: "
        "%(default)s)",
    )
    tune.add_argument("--patience", type=positive, help="end after so many trials without a gain")
    tune.add_argument(
        "--target",
        help="kernels: TVM's target, such as nvidia/nvidia-h100, or cuda for this machine's GPU "
        "(default: this machine's CPU)",
    )
    tune.add_argument("--target-us", type=float, help="kernels: end at this latency, in us")
    tune.add_argument(
        "--tracker",
        metavar="HOST:PORT",
        help="kernels: measure on the servers of this RPC tracker of TVM, instead of this machine",
    )
    tune.add_argument("--key", help="kernels: the key of the servers at the tracker")
    tune.add_argument("--json", action="store_true", help="print the result as JSON")
    tune.add_argument("--quiet", action="store_true", help="show no progress")
    tune.add_argument("--threads", type=positive, default=1, help="threads (default: %(default)s)")
    tune.add_argument("--seed", type=seed, default=0, help="seed of the search and the inputs")
    tune.add_argument(
        "--allow-winograd",
        action="store_true",
        help="allow Winograd convolutions where they are faster and the outputs stay within the "
        "tolerance; they round differently",
    )
    tune.add_argument(
        "--allow-bfloat16",
        action="store_true",
        help="multiply in bfloat16 where the CPU can and the tolerance, 0.1 then, is kept: less "
        "exact, up to twice as fast; not with --allow-winograd",
    )
    tune.add_argument(
        "--tolerance",
        type=float,
        help="the largest difference of an output from the untouched model's, relative to the "
        "scale of the output's row (default: 1e-4; see the options that allow more)",
    )
    tune.add_argument(
        "--inputs",
        metavar="FILE.npz",
        help="values of inputs, such as indices, by their names, to check with, and to measure "
        "kernels with (default: random ones)",
    )
    tune.add_argument("--out", metavar="MODEL.so", help="write the executable here too")
    tune.add_argument(
        "--against",
        choices=["onnxruntime", "pytorch"],
        help="time the model beside what it came from",
    )
    tune.add_argument(
        "--work-dir",
        help="directory of the database and the executable; the same one again goes on "
        "(default: a new temporary directory, which is kept)",
    )
    tune.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
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
        inputs = read_inputs(getattr(options, "inputs", None))
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
        if getattr(options, name, None) is not None:
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
        result = tune(
            options.model,
            shapes=by_bucket("--shape", options.shape) or None,
            # The options of an older version lack these.
            dims=by_bucket("--dim", getattr(options, "dim", [])) or None,
            shares=getattr(options, "shares", None),
            constants=dict(getattr(options, "constant", [])) or None,
            in_place=dict(getattr(options, "in_place", [])) or None,
            threads=options.threads,
            time_budget_s=60.0 * minutes_left,
            trials=trials_left(options.trials, spent_trials),
            stop=options.stop,
            patience=options.patience,
            work_dir=options.work_dir,
            progress=None if options.quiet else "auto",
            exact=not options.allow_winograd,
            precision="bfloat16" if options.allow_bfloat16 else "float32",
            tolerance=options.tolerance,
            inputs=inputs,
            seed=options.seed,
        )
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
    """The latencies beside the reference; empty, with a message, if it cannot run the model."""
    try:
        latencies: Mapping[str, Latency] = result.beside_reference()
        return latencies
    except ValueError as error:  # A ModelError must not lose the result.
        print(f"droplet-ms tune: {error}", file=sys.stderr)
        return {}

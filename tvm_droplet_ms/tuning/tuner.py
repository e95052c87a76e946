# SPDX-License-Identifier: Apache-2.0
"""Tune a whole model: from ONNX, PyTorch or Relax to a checked executable."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

from tvm.s_tir.meta_schedule.measure_callback import MeasureCallback
from tvm.target import Target

from ..compat.flags import check_flag
from ..design_space.dot_products.find_dot import half_unit
from ..frontends.extents import Dims, Shapes
from ..frontends.imported import ImportedModel, check_memory, memory_note
from ..host import tiles_note
from ..model.bindings import weight_bytes
from ..search_strategy.stopping import Stop, check_stop
from ..session.errors import ModelError
from ..session.given_inputs import is_integer, is_positive
from ..session.one_writer import SecondWriterError, only_writer
from ..session.stop import StopRequest
from ..session.target import cpu_target
from ..session.threads import check_threads, set_own_threads, set_worker_threads
from ..session.work_dir import begun_target, open_work_dir
from .check.output_check import (
    EXACT_TOLERANCE,
    HALF_TOLERANCE,
    WINOGRAD_TOLERANCE,
    OutputCheck,
    make_check,
)
from .held_model import hold_model, hold_shapes
from .model_tuning import ModelOptions, ReadModel, tune_model
from .picks.pick_workers import WarmStart
from .result import TuneResult
from .run_context import RunContext
from .several_shapes.bucket_options import (
    BucketOptions,
    Inputs,
    ModelSource,
    bucket_options,
    several,
)
from .tune_shapes import tune_shapes

Precision = Literal["float32", "bfloat16"]


def tune(
    model: Any,
    *,
    shapes: Shapes | Sequence[Shapes] | None = None,
    dims: Dims | Sequence[Dims] | None = None,
    shares: Sequence[float] | None = None,
    constants: Mapping[str, Any] | None = None,
    in_place: Mapping[str, str] | None = None,
    target: str | Mapping[str, Any] | Target = "auto",
    threads: int = 1,
    time_budget_s: float = 300.0,
    trials: int | None = None,
    stop: Stop = "auto",
    patience: int | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    exact: bool = True,
    precision: Precision = "float32",
    tolerance: float | None = None,
    inputs: Inputs | Sequence[Inputs] | None = None,
    callbacks: Sequence[MeasureCallback] = (),
    progress: Callable[[str], None] | Literal["auto"] | None = "auto",
    seed: int = 0,
    prior: str | os.PathLike[str] | None = "auto",
    known: str | os.PathLike[str] | None = "auto",
) -> TuneResult:
    """Tune a whole model for a CPU of this machine.

    Parameters
    ----------
    model : Any
        The path of an ``.onnx`` or ``.pt2`` file, an ``onnx.ModelProto``, a
        ``torch.export.ExportedProgram``, a tuple of a ``torch.nn.Module`` and its example inputs, a
        Relax ``IRModule``, or a tuple of an ``IRModule`` and a mapping of names to parameters.
    shapes : Shapes | Sequence[Shapes] | None
        Shapes by name of the inputs with dynamic extents. A list (``x=1,3|2,3``) makes one library
        for several shapes: it has one mapping per shape, and the result is a ``ShapesResult``.
    dims : Dims | Sequence[Dims] | None
        Extents by their names in an ONNX model or a Relax module, such as
        ``{"batch": 1, "width": 320}``; each applies to all inputs. May be a list
        (``width=320|640``), as `shapes`.
    shares : Sequence[float] | None
        With several shapes, the share of the time and of the trials for each; they are tuned one
        after the other. None for equal shares.
    constants : Mapping[str, Any] | None
        Values of inputs of an ONNX model by name, such as ``{"sr": 16000}``. The tuned model does
        not have these inputs, and an ``If`` that depends on them is resolved.
    in_place : Mapping[str, str] | None
        Inputs of an ONNX model that the model may overwrite, each with the output to write into
        it, such as ``{"past_key_values.*": "present.*"}`` for a decoder's cache.
    target : str | Mapping[str, Any] | Target
        "auto" for this machine's CPU, or a target of kind ``llvm`` that this machine runs.
    threads : int
        Number of threads to tune, check and time with.
    time_budget_s : float
        Wall-clock time in seconds for everything, from the import to the last check. A batch that
        has begun is finished.
    trials : int | None
        Maximum number of schedules to measure. None for no limit. 0 applies the records of
        `work_dir` and the predictions of the pretrained cost model.
    stop : Literal["auto"] | float | None
        Minimum expected gain of a kernel's next 32 trials, as a share of its best time. Below it,
        the trials go to other kernels. The run ends when no kernel is left; see
        ``DropletStrategy``. None (``none``) uses the full time budget.
    patience : int | None
        Number of trials without a gain after which the run ends. None for no limit.
    work_dir : str | os.PathLike[str] | None
        Directory of the database and of the executable, ``model.so``, which exists before the
        first measurement. Another call with the same directory continues the tuning; a call with
        another model is refused. None for a new temporary directory.
    exact : bool
        Whether convolutions must be computed as written. Otherwise Winograd's algorithm is used
        where it is faster.
    precision : Literal["float32", "bfloat16"]
        Precision of the products in convolutions, dense layers and attention. "bfloat16" rounds
        their inputs and weights to eight significant bits and accumulates in float32, on CPUs with
        AVX512_BF16: less exact, and up to twice as fast. If the deviation exceeds the tolerance,
        the model is computed in float32, and a note says so.
    tolerance : float | None
        The largest allowed deviation of an output from the reference, relative to the scale of the
        output's row; see ``OutputCheck``. None for 1e-4, 1e-3 with ``exact=False``, or 0.1 in
        bfloat16.
    inputs : Inputs | Sequence[Inputs] | None
        Values of inputs by name for the check, such as indices. May be a list, as `shapes`. None
        for random ones.
    callbacks : Sequence[MeasureCallback]
        Called after each batch, after TVM's own callbacks.
    progress : Callable[[str], None] | "auto" | None
        "auto" shows a table if standard error is a terminal, and prints lines otherwise. A callable
        receives the lines, at most one every five seconds. None for no output.
    seed : int
        Seed of all random choices.
    prior : str | os.PathLike[str] | None
        The pretrained cost model: "auto" for the shipped one, the path of a file from
        ``droplet-ms pretrain``, or None.
    known : str | os.PathLike[str] | None
        The best schedules of other models' kernels, as candidates for this model: "auto" for the
        shipped schedules, the path of a file from
        ``python -m tvm_droplet_ms.tuning.experience.shipped_schedules``, or None.

    Returns
    -------
    result : TuneResult
        The tuned model, callable on NumPy arrays. Ctrl-C ends the tuning and returns the best
        result so far.

    Raises
    ------
    ModelError
        If the model, a shape, the target, the directory or a number is invalid, or another process
        tunes in the directory. It is raised before any tuning, and says what to pass instead.
    RuntimeError
        If this is not Linux.
    """
    started = time.monotonic()
    _check_numbers(threads, seed, time_budget_s, trials, tolerance, patience, stop, exact)
    buckets = bucket_options(shapes, dims, shares, inputs)
    try:
        warm_start = WarmStart(prior, known)
    except ValueError as error:
        raise ModelError(f"{error}") from error
    set_worker_threads(threads)
    cpu = begun_target(work_dir, target, cpu_target(target, threads))
    _check_precision(precision, exact, cpu)
    directory = open_work_dir(work_dir, cpu, threads)
    source = ModelSource(model, constants, in_place, threads)
    default = EXACT_TOLERANCE if exact else WINOGRAD_TOLERANCE
    if precision == "bfloat16":
        default = HALF_TOLERANCE
    options = ModelOptions(
        exact=exact,
        halves=precision == "bfloat16",
        tolerance=tolerance or default,
        tolerance_in_float32=tolerance or EXACT_TOLERANCE,
        callbacks=callbacks,
        progress=progress,
        patience=patience,
        stop=stop,
    )
    is_own = isinstance(target, str) and target == "auto"
    request = StopRequest(started + time_budget_s)
    try:
        with only_writer(directory):
            models = []
            for bucket in buckets:
                context = RunContext(cpu, threads, directory, seed, warm_start)
                imported = _import(source, bucket, context, is_own, len(buckets))
                check = _make_check(imported, bucket, context, options)
                models.append(ReadModel(imported, check, context))
            inputs_of = [{one.name: one.shape for one in each.imported.inputs} for each in models]
            for note in hold_shapes(directory, inputs_of):
                models[0].context.note(note)
            if several(shapes, dims):
                return tune_shapes(source, models, buckets, options, request, trials)
            with request.on_interrupt():
                return tune_model(models[0], options, request, trials)
    except SecondWriterError as error:
        raise ModelError(str(error)) from error


def _import(
    source: ModelSource, bucket: BucketOptions, context: RunContext, is_own: bool, copies: int
) -> ImportedModel:
    """Read a model with the shapes of a bucket, and record it in the work directory.

    ``is_own``: whether the target is this machine. ``copies``: the number of buckets.
    """
    with context.phases("import"), context.target:
        imported = source.read(bucket)
        refused = tiles_note() if is_own else None
        notes = [*imported.notes, *([] if refused is None else [refused])]
        if imported.identity is not None:
            notes += hold_model(context.directory, imported.identity)
        weights = weight_bytes(imported.mod["main"])
        for note in (*notes, *memory_note(weights, copies)):
            context.note(note)
        check_memory(weights, copies=copies)
    return imported


def _make_check(
    imported: ImportedModel, bucket: BucketOptions, context: RunContext, options: ModelOptions
) -> OutputCheck:
    """Run the reference."""
    with context.phases("check"):
        set_own_threads(context.threads)
        check = make_check(imported, context.target, options.tolerance, context.seed, bucket.inputs)
        return replace(check, is_strict=options.halves)


def _check_precision(precision: str, exact: bool, target: Target) -> None:
    if precision not in get_args(Precision):
        known = ", ".join(map(repr, get_args(Precision)))
        raise ModelError(f"precision={precision!r}: expected one of {known}")
    if precision == "bfloat16" and not exact:
        raise ModelError(
            "exact=False and precision='bfloat16' exclude each other: Winograd's algorithm is for "
            "convolutions of float32; leave one out (--allow-winograd, --allow-bfloat16)"
        )
    if precision == "bfloat16" and half_unit(target) is None:
        raise ModelError(
            f"precision='bfloat16': the target {target} has no AVX512_BF16, "
            "by which it is faster: leave it out (--allow-bfloat16)"
        )


def _check_numbers(
    threads: int,
    seed: int,
    time_budget_s: float,
    trials: int | None,
    tolerance: float | None,
    patience: int | None,
    stop: Stop,
    exact: bool,
) -> None:
    check_threads(threads)
    for name, value, is_right, expected in (
        ("seed", seed, is_integer(seed), "an int"),
        (
            "time_budget_s",
            time_budget_s,
            is_positive(time_budget_s),
            "a positive number of seconds",
        ),
        ("trials", trials, trials is None or is_integer(trials, 0), "None or an int of at least 0"),
        (
            "patience",
            patience,
            patience is None or is_integer(patience, 1),
            "None or an int of at least 1",
        ),
        ("tolerance", tolerance, tolerance is None or is_positive(tolerance), "a positive number"),
    ):
        if not is_right:
            raise ModelError(f"{name}={value!r}: expected {expected}")
    try:
        check_stop(stop)
        check_flag("exact", exact)
    except ValueError as error:
        raise ModelError(str(error)) from error

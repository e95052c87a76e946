# SPDX-License-Identifier: Apache-2.0
"""Tune a whole model: from ONNX, PyTorch or Relax to a checked executable."""

import functools
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from tvm.s_tir.meta_schedule.measure_callback import MeasureCallback
from tvm.target import Target

from ..compat.flags import check_flag
from ..frontends import import_model
from ..frontends.extents import Dims, Shapes
from ..frontends.imported import ImportedModel, check_memory
from ..host import tiles_note
from ..search_strategy.stopping import Stop, check_stop
from ..session.errors import ModelError, RoundingError
from ..session.given_inputs import is_integer, is_positive
from ..session.one_writer import SecondWriterError, only_writer
from ..session.stop import StopRequest
from ..session.target import cpu_target
from ..session.threads import check_threads, set_own_threads, set_worker_threads
from ..session.work_dir import begun_target, open_work_dir
from .check.output_check import EXACT_TOLERANCE, OutputCheck, make_check
from .choices.precision import Precision, check_precision, default_tolerance
from .experience.strategy import Experience
from .held_model import hold_model, hold_shapes
from .model_tuning import ModelTuning
from .parts import Parts
from .result import TuneResult
from .run_context import RunContext
from .several_shapes.bucket_options import BucketOptions, Inputs, bucket_options, several
from .several_shapes.one_shape import OneShape
from .several_shapes.tune_buckets import tune_buckets
from .watch import Watch

logger = logging.getLogger(__name__)


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
        Wall-clock time in seconds (``--minutes``: in minutes) for everything, from the import to
        the last check. A batch that has begun is finished.
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
        AVX512_BF16: less exact, and up to twice as fast. Residuals and activations read the same
        inputs. If the deviation exceeds the tolerance, the model is computed in float32, and a note
        says so.
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
        experience = Experience(prior, known)
    except ValueError as error:
        raise ModelError(f"{error}") from error
    set_worker_threads(threads)
    cpu = begun_target(work_dir, target, cpu_target(target, threads))
    check_precision(precision, exact, cpu)
    asked = tolerance
    if tolerance is None:
        tolerance = default_tolerance(precision, exact)
    directory = open_work_dir(work_dir, cpu, threads)

    def imported_for(bucket: BucketOptions) -> ImportedModel:
        given: dict[str, Any] = {"dims": bucket.dims, "constants": constants, "in_place": in_place}
        return import_model(model, bucket.shapes, threads, **given)

    def prepare(bucket: BucketOptions) -> _Prepared:
        parts = Parts()
        with parts("import"), cpu:
            imported = imported_for(bucket)
            refused = tiles_note() if isinstance(target, str) and target == "auto" else None
            notes = [*imported.notes, *([] if refused is None else [refused])]
            if imported.identity is not None:
                notes += hold_model(directory, imported.identity)
            for note in notes:
                logger.warning("%s", note)
            check_memory(imported, copies=len(buckets))
        with parts("check"):
            set_own_threads(threads)
            check = make_check(imported, cpu, tolerance, seed, bucket.inputs)
            check = replace(check, is_strict=precision == "bfloat16")
        return _Prepared(imported, check, parts, tuple(notes))

    def probe(bucket: BucketOptions) -> OutputCheck:
        with cpu:
            return make_check(imported_for(bucket), cpu, tolerance, seed)

    def tune_prepared(
        prepared: _Prepared,
        request: StopRequest,
        trials: int | None,
        experience: Experience,
        shape: OneShape | None = None,
    ) -> TuneResult:
        def run(prepared: _Prepared, halves: bool) -> TuneResult:
            watch = Watch(directory, callbacks, progress, patience, stop)
            context = RunContext(cpu, threads, directory, seed, experience, watch, prepared.parts)
            tuning = ModelTuning(
                prepared.imported, prepared.check, context, exact, shape=shape, halves=halves
            )
            result = tuning.run(request, trials)
            return replace(result, notes=(*prepared.notes, *result.notes))

        try:
            return run(prepared, precision == "bfloat16")
        except RoundingError as error:
            note = (
                f"in bfloat16 the outputs deviate by {error.deviation:.1e}, where the tolerance is "
                f"{prepared.check.tolerance:.1e}: the model is computed in float32; pass a larger "
                "tolerance (--tolerance) to have it in bfloat16"
            )
            logger.warning("%s", note)
            return run(prepared.in_float32(asked or EXACT_TOLERANCE, note), halves=False)

    request = StopRequest(started + time_budget_s)
    try:
        with only_writer(directory):
            prepared = [prepare(bucket) for bucket in buckets]
            inputs_of = [{one.name: one.shape for one in each.imported.inputs} for each in prepared]
            held = hold_shapes(directory, inputs_of)
            for note in held:
                logger.warning("%s", note)
            prepared[0] = replace(prepared[0], notes=(*prepared[0].notes, *held))
            if several(shapes, dims):
                tuned = [functools.partial(tune_prepared, one) for one in prepared]
                return tune_buckets(
                    tuned, buckets, probe, request, trials, experience, directory, cpu
                )
            with request.on_interrupt():
                return tune_prepared(prepared[0], request, trials, experience)
    except SecondWriterError as error:
        raise ModelError(str(error)) from error


@dataclass(frozen=True)
class _Prepared:
    """An imported model with its shapes, before tuning."""

    imported: ImportedModel
    check: OutputCheck
    parts: Parts
    notes: tuple[str, ...]

    def in_float32(self, tolerance: float, note: str) -> "_Prepared":
        """Return a copy with another tolerance and a note that gives the reason."""
        check = replace(self.check, tolerance=tolerance, is_strict=False)
        return replace(self, check=check, notes=(*self.notes, note))


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
    if not is_integer(seed):
        raise ModelError(f"seed={seed!r}: expected an int")
    if not is_positive(time_budget_s):
        raise ModelError(f"time_budget_s={time_budget_s!r}: expected a positive number of seconds")
    if trials is not None and not is_integer(trials, 0):
        raise ModelError(f"trials={trials!r}: expected None or an int of at least 0")
    if patience is not None and not is_integer(patience, 1):
        raise ModelError(f"patience={patience!r}: expected None or an int of at least 1")
    try:
        check_stop(stop)
        check_flag("exact", exact)
    except ValueError as error:
        raise ModelError(str(error)) from error
    if tolerance is not None and not is_positive(tolerance):
        raise ModelError(f"tolerance={tolerance!r}: expected a positive number")

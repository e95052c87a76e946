# SPDX-License-Identifier: Apache-2.0
"""Tune a model for several shapes, one after the other, and join the compiled models."""

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

from tvm.target import Target

from ...runtime.shapes import Bucket, Buckets
from ...search_strategy.known.known_schedules import find_schedules, write_schedules
from ...session.archive import replacing
from ...session.database import open_database
from ...session.errors import TooLateError
from ...session.stop import StopRequest
from ...session.work_dir import EXECUTABLE
from ..compile.compiled_model import CompiledModel
from ..experience.shipped_schedules import best_schedules
from ..experience.strategy import Experience
from ..result import TuneResult
from .bucket_options import BucketOptions
from .joined_model import ShapeModel, entry_name, join
from .one_shape import OneShape
from .padding_check import PADDED, REFUSED, Probe, why_not_padded
from .shapes_result import ShapesResult
from .weight_layouts import WeightLayouts

logger = logging.getLogger(__name__)

JOINING_SHARE = 0.1
"""The share of the time that is reserved for joining the shapes and testing the padding."""

TuneOne = Callable[[StopRequest, int | None, Experience, OneShape], TuneResult]
"""Tunes one shape, given the time limit, the maximum trials, the experience and the shape."""


def tune_buckets(
    tuned: Sequence[TuneOne],
    buckets: Sequence[BucketOptions],
    probe: Probe,
    request: StopRequest,
    trials: int | None,
    experience: Experience,
    directory: Path,
    target: Target,
) -> ShapesResult:
    """Tune each shape with its share of the remaining time and trials, and join the shapes.

    The largest shape comes first: its weight layouts suit the others best. Each shape starts with
    the best schedules of the earlier shapes, refitted to its extents. A kernel that two shapes
    share already has measurements. Each shape has its own library file until all are joined in
    ``EXECUTABLE``. ``tuned``: tunes each shape; ``probe``: see ``why_not_padded``.

    Raises ``TooLateError`` if the time is too short for a first executable of each shape.
    """
    found: dict[int, tuple[TuneResult, ShapeModel]] = {}
    tuning = request.earlier(JOINING_SHARE * request.left)
    layouts = WeightLayouts(directory, target)
    order = sorted(range(len(buckets)), key=lambda number: -buckets[number].size)
    with request.on_interrupt(), tempfile.TemporaryDirectory(prefix="droplet_shapes_") as name:
        folder = Path(name)
        for place, number in enumerate(order):
            left = buckets[number].share / sum(buckets[other].share for other in order[place:])
            most = None
            if trials is not None:
                most = round(left * (trials - sum(result.trials for result, _ in found.values())))
            logger.info("shape %d of %d", place + 1, len(buckets))
            shape = OneShape(number, layouts, folder)
            until = tuning.earlier((1 - left) * tuning.left)
            try:
                result = tuned[number](until, most, experience, shape)
            except TooLateError as error:
                raise TooLateError(
                    f"{error}; {place} of {len(buckets)} shapes have a library of their own in "
                    f"{directory}, and what was measured is kept"
                ) from error
            assert shape.model is not None
            found[number] = result, shape.model
            layouts.end_shape()
            experience = _with_schedules(experience, directory, target, folder / f"{number}.jsonl")
        results, models = zip(*(found[number] for number in range(len(buckets))), strict=True)
        results = _joined(results, models, folder, directory, target)
        shapes = Buckets(tuple(map(_bucket, results)))
        reason = why_not_padded(results, shapes, buckets, probe, request)
    first = {field.name: getattr(results[0], field.name) for field in fields(TuneResult)}
    note = REFUSED + reason if reason else PADDED
    logger.info("%s", note)
    notes = dict.fromkeys(each for result in results for each in result.notes)
    first |= {"trials": sum(result.trials for result in results), "notes": (*notes, note)}
    if request.is_asked:
        first["why_ended"] = "interrupt"
    return ShapesResult(**first, of_shapes=results, buckets=shapes, why_not_padded=reason)


def _with_schedules(
    experience: Experience, directory: Path, target: Target, path: Path
) -> Experience:
    """Add the best schedules of a directory to the known ones, in a new file."""
    measured = best_schedules([open_database(directory)])
    write_schedules(path, dict.fromkeys([*measured, *find_schedules(experience.known, target)]))
    return replace(experience, known=path)


def _joined(
    results: Sequence[TuneResult],
    models: Sequence[ShapeModel],
    folder: Path,
    directory: Path,
    target: Target,
) -> tuple[TuneResult, ...]:
    """Write one library for all shapes; return the results, which run it."""
    with replacing(directory / EXECUTABLE) as partial:
        join(models, folder, target).write(partial)
    library = CompiledModel.load(directory / EXECUTABLE)
    found = tuple(
        replace(result, compiled=library.entry(entry_name(number)))
        for number, result in enumerate(results)
    )
    for result in found:
        _check(result, directory / EXECUTABLE)
    for path in directory.glob("shape_*.so"):
        path.unlink()
    return found


def _check(result: TuneResult, path: Path) -> None:
    deviation = result.check.deviation(result.compiled)
    if deviation > result.check.tolerance:
        raise RuntimeError(
            f"the outputs of {path} differ from {result.check.reference.name} by {deviation:.1e} "
            "of its scale, where the same model gave the right ones before it was joined with "
            "those of other shapes: please report the model"
        )


def _bucket(result: TuneResult) -> Bucket:
    outputs = tuple(tuple(array.shape) for array in result.check.expected[0])
    return Bucket(tuple(spec.shape for spec in result.inputs), outputs)

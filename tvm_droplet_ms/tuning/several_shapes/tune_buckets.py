# SPDX-License-Identifier: Apache-2.0
"""Tune a model for several shapes, one after the other, and join what was compiled."""

import logging
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from tvm.target import Target

from ...search_strategy.known.known_schedules import find_schedules, write_schedules
from ...session.database import open_database
from ...session.stop import StopRequest
from ..compile.compiled_model import CompiledModel
from ..compile.kernel_objects import KernelObjects
from ..experience.shipped_schedules import best_schedules
from ..experience.strategy import Experience
from ..frontends.imported import Arrays
from ..held_model import EXECUTABLE
from ..picks.pick_workers import start_workers
from ..result import TuneResult
from .bucket_options import BucketOptions
from .joined_model import Scheduled, entry_name, join
from .padding import Bucket, Buckets, Cuts, cut, padded
from .shapes_result import ShapesResult
from .weight_layouts import WeightLayouts

logger = logging.getLogger(__name__)

JOINING_SHARE = 0.1
"""The share of the time that is kept to compile the kernels of all shapes into one library."""

TuneOne = Callable[
    [
        BucketOptions,
        StopRequest,
        int | None,
        Experience,
        str,
        WeightLayouts | None,
    ],
    tuple[TuneResult, CompiledModel],
]
"""Tunes one shape until a moment, with so many trials and what is known, into a file, with the
layouts of weights that others have."""


def tune_buckets(
    tune_one: TuneOne,
    buckets: Sequence[BucketOptions],
    request: StopRequest,
    trials: int | None,
    experience: Experience,
    directory: Path,
    target: Target,
) -> ShapesResult:
    """Tune each shape with its share of what the shapes before have left, and join them.

    The largest comes first: its layouts of weights suit the others best. A shape begins with the
    best schedules of those before, refitted to its extents; a kernel that two shapes share has its
    measurements already. The library of each is in a file of its own until all are joined in
    ``EXECUTABLE``.
    """
    found: dict[int, tuple[TuneResult, Scheduled]] = {}
    tuning = request.earlier(JOINING_SHARE * request.left)
    layouts = WeightLayouts(directory, target)
    order = sorted(range(len(buckets)), key=lambda number: -buckets[number].size)
    with tempfile.TemporaryDirectory(prefix="droplet_shapes_") as folder:
        for place, number in enumerate(order):
            left = buckets[number].share / sum(buckets[other].share for other in order[place:])
            most = None
            if trials is not None:
                most = round(left * (trials - sum(result.trials for result, _ in found.values())))
            logger.info("shape %d of %d", number + 1, len(buckets))
            result, compiled = tune_one(
                buckets[number],
                tuning.earlier((1 - left) * tuning.left),
                most,
                experience,
                f"shape_{number}.so",
                layouts,
            )
            layouts.end_shape()
            assert compiled.linked is not None
            linked = compiled.linked
            found[number] = result, Scheduled(linked.mod, linked.kernels)
            experience = _with_schedules(experience, directory, Path(folder) / f"{number}.jsonl")
    results, models = zip(*(found[number] for number in range(len(buckets))), strict=True)
    return _joined(results, models, directory, target)


def _with_schedules(experience: Experience, directory: Path, path: Path) -> Experience:
    """What is known, with the best schedules of a directory, in a file."""
    measured = best_schedules([open_database(directory)])
    write_schedules(path, dict.fromkeys([*measured, *find_schedules(experience.known)]))
    return replace(experience, known=path)


def _joined(
    results: Sequence[TuneResult], models: Sequence[Scheduled], directory: Path, target: Target
) -> ShapesResult:
    """Write one library of all shapes, and describe it."""
    workers = start_workers()
    try:
        linked = join(models, KernelObjects(target, workers), target)
        library = CompiledModel(linked)
        library.export(directory / EXECUTABLE)
    finally:
        workers.close()
    loaded = CompiledModel.load(directory / EXECUTABLE)
    found = [
        replace(result, compiled=loaded.entry(entry_name(number)))
        for number, result in enumerate(results)
    ]
    for result in found:
        _check(result, directory / EXECUTABLE)
    for number in range(len(results)):
        (directory / f"shape_{number}.so").unlink(missing_ok=True)
    buckets = Buckets(tuple(_bucket(result) for result in found))
    pads, note = _pads(found, buckets)
    first = {field.name: getattr(found[0], field.name) for field in fields(TuneResult)}
    notes = dict.fromkeys(note for result in found for note in result.notes)
    return ShapesResult(
        **{
            **first,
            "trials": sum(result.trials for result in found),
            "notes": (*notes, note),
            "of_shapes": tuple(found),
            "buckets": buckets,
            "pads": pads,
        }
    )


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


def _pads(results: Sequence[TuneResult], buckets: Buckets) -> tuple[bool, str]:
    """Whether inputs may be padded, and that in words.

    The inputs of the check of each shape are padded to each larger one, and the outputs compared
    with those of its reference.
    """
    cuts = buckets.cuts()
    if cuts is None:
        return False, (
            "inputs of other extents are refused: an extent of an output is none of an input's, so "
            "that a padded one could not be cut back"
        )
    pairs = [
        (small, large)
        for small, bucket in enumerate(buckets.buckets)
        for large, other in enumerate(buckets.buckets)
        if small != large and other.holds(bucket.inputs)
    ]
    for small, large in pairs:
        if not _agrees_padded(results, buckets, cuts, small, large):
            extents = f"{buckets.buckets[small].inputs} to {buckets.buckets[large].inputs}"
            return False, (
                f"inputs of other extents are refused: padded with zeros from {extents}, the "
                "outputs are others"
            )
    if not pairs:
        return False, "inputs of other extents are refused: no shape holds another one"
    return True, (
        "inputs of other extents are padded with zeros to the next shape, and the outputs cut: "
        "those of the check stayed as they were"
    )


def _agrees_padded(
    results: Sequence[TuneResult], buckets: Buckets, cuts: Cuts, small: int, large: int
) -> bool:
    """True if one shape's inputs, padded to another, have the outputs of the reference."""
    bucket, shapes = buckets.buckets[small], buckets.buckets[large].inputs
    model = results[large].compiled

    def run(inputs: Sequence[np.ndarray]) -> Arrays:
        return cut(model(padded(inputs, shapes)), cuts, bucket.inputs)

    return results[small].check.agrees(run)

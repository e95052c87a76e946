# SPDX-License-Identifier: Apache-2.0
"""Tune a model for several shapes, one after the other, and join the compiled models."""

import json
import logging
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from pathlib import Path

from tvm.target import Target

from ..runtime.library_info import LibraryInfo, append_info
from ..runtime.shapes import Buckets
from ..search_strategy.known_schedules import find_schedules, write_schedules
from ..session.archive import replacing
from ..session.database import open_database
from ..session.errors import TooLateError
from ..session.stop import StopRequest
from ..session.work_dir import EXECUTABLE
from .compile.compiled_model import CompiledModel
from .compile.description import entry_name, join_infos
from .compile.linked_model import LinkedModel
from .experience.shipped_schedules import best_schedules
from .model_tuning import ModelOptions, ReadModel, tune_model
from .picks.pick_workers import WarmStart
from .result import TuneResult
from .several_shapes.bucket_options import BucketOptions, ModelSource
from .several_shapes.joined_model import OneShape, join
from .several_shapes.padding_check import PADDED, REFUSED, why_not_padded
from .several_shapes.weight_layouts import WeightLayouts

logger = logging.getLogger(__name__)

JOINING_SHARE = 0.1
"""The share of the time that is reserved for joining the shapes and testing the padding."""


@dataclass(frozen=True, repr=False)
class ShapesResult(TuneResult):
    """A model tuned for several shapes in one library, callable with NumPy arrays.

    The trials and the notes cover all shapes. The other inherited fields are those of the first
    shape.

    Parameters
    ----------
    of_shapes : tuple[TuneResult, ...]
        The result for each shape, in order. Their functions in the library are ``main``,
        ``main_1``, ``main_2`` and so on. ``export`` and ``executable`` of each result give the
        library of all shapes.
    """

    of_shapes: tuple[TuneResult, ...] = ()

    @property
    def buckets(self) -> Buckets:
        """The shapes."""
        return self.info.buckets

    @property
    def why_not_padded(self) -> str:
        """Why inputs of other extents are refused; "" if they are padded."""
        return self.info.why_not_padded

    @property
    def pads(self) -> bool:
        """Whether inputs of other extents are padded with zeros to the next shape.

        The outputs are cut back: a test of this changed no output.
        """
        return not self.info.why_not_padded

    @property
    def each_shape(self) -> tuple[TuneResult, ...]:
        """The result for each shape."""
        return self.of_shapes

    def _repr_html_(self) -> str:
        """Return the summaries of all shapes as tables for a notebook."""
        tables = (
            f"<p>{escape(f'{entry_name(number)}: {result.shown_inputs}')}</p>{result._repr_html_()}"
            for number, result in enumerate(self.of_shapes)
        )
        return "".join([*tables, *(f"<p>note: {escape(note)}</p>" for note in self.notes[-1:])])

    def as_json(self) -> str:
        """Return the results of all shapes as JSON."""
        shapes = [
            {
                "function": entry_name(number),
                **json.loads(result.as_json()),
            }
            for number, result in enumerate(self.of_shapes)
        ]
        content = {"pads": self.pads, "notes": list(self.notes), "of_shapes": shapes}
        return json.dumps(content, indent=1)


def tune_shapes(
    source: ModelSource,
    models: Sequence[ReadModel],
    buckets: Sequence[BucketOptions],
    options: ModelOptions,
    request: StopRequest,
    trials: int | None,
) -> ShapesResult:
    """Tune each shape with its share of the remaining time and trials, and join the shapes.

    The largest shape comes first: its weight layouts suit the others best. Each shape starts with
    the best schedules of the earlier shapes, refitted to its extents. A kernel that two shapes
    share already has measurements. Each shape has its own library file until all are joined in
    ``EXECUTABLE``.

    Raises ``TooLateError`` if the time is too short for a first executable of each shape.
    """
    context = models[0].context
    directory, target, warm_start = context.directory, context.target, context.warm_start
    found: dict[int, tuple[TuneResult, LinkedModel]] = {}
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
            own = replace(models[number].context, warm_start=warm_start)
            try:
                result = tune_model(
                    replace(models[number], context=own), options, until, most, shape
                )
            except TooLateError as error:
                raise TooLateError(
                    f"{error}; {place} of {len(buckets)} shapes have a library of their own in "
                    f"{directory}, and what was measured is kept"
                ) from error
            assert shape.model is not None
            found[number] = result, shape.model
            layouts.end_shape()
            warm_start = _with_schedules(warm_start, directory, target, folder / f"{number}.jsonl")
        results, models = zip(*(found[number] for number in range(len(buckets))), strict=True)
        results = _joined(results, models, folder, directory, target)
        info = results[0].info
        reason = why_not_padded(
            results, info.buckets, buckets, source, options.tolerance, context.seed, request
        )
        info = replace(info, why_not_padded=reason)
        _write_info(directory / EXECUTABLE, info)
    first = {field.name: getattr(results[0], field.name) for field in fields(TuneResult)}
    note = REFUSED + reason if reason else PADDED
    logger.info("%s", note)
    notes = dict.fromkeys(each for result in results for each in result.notes)
    first |= {"trials": sum(result.trials for result in results), "notes": (*notes, note)}
    first["info"] = info
    if request.is_asked:
        first["why_ended"] = "interrupt"
    return ShapesResult(**first, of_shapes=results)


def _write_info(path: Path, info: LibraryInfo) -> None:
    """Write the description of a library; a killed run leaves the earlier one."""
    try:
        with replacing(path) as partial:
            shutil.copy(path, partial)
            append_info(partial, info)
    except OSError as error:  # Such as a full disk: sessions then do not pad.
        logger.warning("%s keeps its first description: %s", path, error)


def _with_schedules(
    warm_start: WarmStart, directory: Path, target: Target, path: Path
) -> WarmStart:
    """Add the best schedules of a directory to the known ones, in a new file."""
    measured = best_schedules([open_database(directory)])
    write_schedules(path, dict.fromkeys([*measured, *find_schedules(warm_start.known, target)]))
    return replace(warm_start, known=path)


def _joined(
    results: Sequence[TuneResult],
    models: Sequence[LinkedModel],
    folder: Path,
    directory: Path,
    target: Target,
) -> tuple[TuneResult, ...]:
    """Write one library for all shapes; return the results, which run it."""
    info = join_infos([result.info for result in results])
    with replacing(directory / EXECUTABLE) as partial:
        join(models, folder, target).write(partial)
        append_info(partial, info)
    library = CompiledModel.load(directory / EXECUTABLE)
    found = tuple(
        replace(result, compiled=library.entry(entry_name(number)), info=info)
        for number, result in enumerate(results)
    )
    for result in found:
        result.check.require(
            result.compiled, directory / EXECUTABLE, "joined with those of other shapes"
        )
    for path in directory.glob("shape_*.so"):
        path.unlink()
    return found

# SPDX-License-Identifier: Apache-2.0
"""Test whether inputs of other extents may be padded."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ...frontends.imported import Arrays, run_reference
from ...runtime.shapes import Buckets, cut, padded
from ...session.errors import ModelError
from ...session.stop import StopRequest
from ..check.output_check import EXACT_TOLERANCE, OutputCheck, make_check
from ..result import TuneResult
from .bucket_options import BucketOptions, ModelSource

ROUNDING = 2.0
"""The maximum deviation of padded inputs from the reference, as a multiple of the deviation at the
tuned shape, which is rounding."""

GRACE_SECS = 10.0
"""The seconds after the deadline that the test may take."""

REFUSED = "inputs of other extents are refused: "

PADDED = (
    "inputs of other extents are padded with zeros to the next shape, and the outputs cut; tried "
    "on random inputs at the least, the middle and the largest extent between two shapes; not for "
    "rows that a mask blanks out whole"
)


def why_not_padded(
    results: Sequence[TuneResult],
    buckets: Buckets,
    options: Sequence[BucketOptions],
    source: ModelSource,
    tolerance: float,
    seed: int,
    stop: StopRequest,
) -> str:
    """Return the reason not to pad; empty if all tests gave the outputs of the reference.

    The model is imported with extents between the tuned ones (``BucketOptions.between``). The
    inputs are the random ones, and their negative and positive absolute values, since padded zeros
    may win a maximum. Floating-point inputs are padded with zeros and with noise, since the values
    of padding must not matter.
    """
    if not buckets.open_axes:
        return "the shapes differ in no extent of an input"
    if buckets.cuts() is None:
        return "an extent of an output is none of an input's, so that it could not be cut back"
    tries = 0
    for own in options:
        for tried in own.between(options):
            extents = {**(tried.shapes or {}), **(tried.dims or {})}
            if stop.is_asked and tries:
                return "it was interrupted before padding was tried; the same call again tries it"
            if stop.over > GRACE_SECS:
                return "there was no time to try it; pass a larger time_budget_s (--minutes)"
            tries += 1
            try:
                with results[0].target:
                    check = make_check(source.read(tried), results[0].target, tolerance, seed)
            except ModelError as error:
                return f"the model has no outputs at {extents}: {error}"
            if not _holds(check, results, buckets):
                return f"with {extents}, padded to the next shape, the outputs are others"
    return "" if tries else "no extent lies between those of the shapes"


def _holds(check: OutputCheck, results: Sequence[TuneResult], buckets: Buckets) -> bool:
    """Return whether the padded inputs of a check give the outputs of its reference."""
    shapes = tuple(tuple(array.shape) for array in check.inputs[0])
    number = buckets.find(shapes, pads=True)
    if number is None:
        return False
    result, bucket, cuts = results[number], buckets.buckets[number], buckets.cuts() or {}

    def run(inputs: Sequence[np.ndarray], noise: np.random.Generator | None = None) -> Arrays:
        return cut(result.compiled(padded(inputs, bucket.inputs, noise)), cuts, shapes)

    for inputs in _trials(check.inputs[0], [spec.use.extent for spec in result.inputs]):
        try:
            expected = run_reference(check.reference, inputs)
        except ModelError:  # The reference rejects such values.
            continue
        # Padding gets no tolerance for the precision: the deviation at the tuned shape includes it.
        tolerance = min(check.tolerance, max(EXACT_TOLERANCE, ROUNDING * result.deviation))
        one = replace(check, inputs=(inputs,), expected=(expected,), tolerance=tolerance)
        shapes_differ = [a.shape for a in run(inputs)] != [a.shape for a in expected]
        if shapes_differ or not one.agrees(run):
            return False
        # The same executable with other padding has the same rounding, so rounding is no excuse.
        alike = replace(one, expected=(run(inputs),), tolerance=EXACT_TOLERANCE, is_strict=True)
        if not alike.agrees(partial(run, noise=np.random.default_rng(0))):
            return False
    return True


def _trials(
    inputs: Sequence[np.ndarray], indexed: Sequence[int | None]
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield inputs of any sign, and with indices from the end, where padding lies.

    ``indexed``: the extent that each input indexes; None for inputs that are not indices.
    """
    for signed in (lambda array: array, lambda array: -np.abs(array), np.abs):
        yield tuple(signed(array) if array.dtype.kind == "f" else array for array in inputs)
    if any(extent is not None for extent in indexed):
        yield tuple(
            array if extent is None else np.full_like(array, -1)
            for array, extent in zip(inputs, indexed, strict=True)
        )

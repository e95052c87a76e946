# SPDX-License-Identifier: Apache-2.0
"""A tuned model beside its reference: the difference of the outputs, and both timed in turns."""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

RIGHT = 1e-3
"""The largest difference, relative to the row's largest element."""

ROUNDS = 15
"""Alternating runs of both."""


def row_deviation(
    outputs: Sequence[np.ndarray], expected: Sequence[np.ndarray], of_probabilities: float = 0.0
) -> float:
    """The largest difference of an element, relative to the largest value of its row.

    A row is what lies along the last axis. Of integers and booleans, the share that differ.
    Infinity where shapes, types, or the places of what is not finite differ.
    ``of_probabilities``: the difference that floats between 0 and 1 may have in any case.
    """
    if len(outputs) != len(expected):
        return np.inf
    worst = 0.0
    for found, wanted in zip(outputs, expected, strict=True):
        if found.shape != wanted.shape or found.dtype != wanted.dtype:
            return np.inf
        if wanted.dtype.kind in "biu":
            worst = max(worst, float(np.mean(found != wanted)) if wanted.size else 0.0)
            continue
        is_share = wanted.dtype.kind == "f" and ((wanted >= 0) & (wanted <= 1)).all()
        found, wanted = np.atleast_1d(found.astype("f8")), np.atleast_1d(wanted.astype("f8"))
        finite = np.isfinite(wanted)
        if not np.array_equal(found[~finite], wanted[~finite], equal_nan=True):
            return np.inf
        if not np.isfinite(found[finite]).all():
            return np.inf
        gap = np.abs(np.where(finite, found - wanted, 0.0)).max(-1, initial=0.0)
        gap = np.maximum(gap - of_probabilities * is_share, 0.0)
        scale = np.abs(np.where(finite, wanted, 0.0)).max(-1, initial=0.0)
        # A row that is nearly zero beside the others is what rounding left of them.
        scale = np.maximum(scale, 1e-3 * scale.max(initial=0.0))
        worst = max(worst, float((gap / np.where(scale > 0, scale, 1.0)).max(initial=0.0)))
    return worst


def timed_in_turns(
    ours: Callable[[], Any], theirs: Callable[[], Any], reference: str
) -> dict[str, float]:
    """Milliseconds of both, and the median of the reference's time over ours in each round."""
    rounds = [(_ms(ours), _ms(theirs)) for _ in range(ROUNDS)]
    return {
        "ms": median(first for first, _ in rounds),
        f"{reference}_ms": median(second for _, second in rounds),
        "speed": median(second / first for first, second in rounds),
    }


def _ms(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)

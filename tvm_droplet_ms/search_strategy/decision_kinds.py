# SPDX-License-Identifier: Apache-2.0
"""The kinds of decisions of the published search, by the name that other rooms import them by."""

from .published.decision_kinds import (
    CATEGORICAL,
    COMPUTE_LOCATION,
    DECISION_KINDS,
    PARALLEL_EXTENT,
    PERFECT_TILE,
    DecisionKind,
)

__all__ = [
    "CATEGORICAL",
    "COMPUTE_LOCATION",
    "DECISION_KINDS",
    "PARALLEL_EXTENT",
    "PERFECT_TILE",
    "DecisionKind",
]

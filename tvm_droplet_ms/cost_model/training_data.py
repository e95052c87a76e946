# SPDX-License-Identifier: Apache-2.0
"""Training data of cost models: the measured programs of a workload, and their file."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..session.archive import READ_ERRORS, load_arrays, replacing
from .throughput import relative_throughput

if TYPE_CHECKING:
    from tvm.target import Target


class TrainingDataError(ValueError):
    """Training data cannot be read or cannot be combined; the message says why."""


@dataclass(frozen=True)
class MeasuredWorkload:
    """Measured programs of one workload on one target.

    - ``name``: the workload's name, for messages; its structural hash if it comes from a database.
    - ``target``: the target, in the format of ``target_text``.
    - ``features``: the features of each program, of shape ``(programs, width)`` with the
      extractor's width, float32.
    - ``secs``: the time of each program in seconds, of shape ``(programs,)``; infinity for a
      failure.
    """

    name: str
    target: str
    features: np.ndarray
    secs: np.ndarray

    @property
    def throughput(self) -> np.ndarray:
        """The best time divided by the time of each program, of shape ``(programs,)``."""
        return relative_throughput(self.secs)

    def save(self, path: str | os.PathLike[str], schema: str) -> None:
        """Write a compressed ``.npz`` file; the file is complete or absent.

        ``path``: the file; missing directories are made. ``schema``: the schema of the extractor
        that made the features.
        """
        with replacing(path) as partial, partial.open("wb") as file:
            np.savez_compressed(file, schema=np.array(schema), **vars(self))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "tuple[MeasuredWorkload, str]":
        """Read a file that ``save`` wrote.

        Returns ``workload``: the measured programs; ``schema``: the schema of their features.
        Raises ``TrainingDataError`` if the file cannot be read, is damaged, or holds something
        else.
        """
        try:
            with open(path, "rb") as file:
                arrays = load_arrays(file)
            workload = MeasuredWorkload(
                str(arrays["name"]), str(arrays["target"]), arrays["features"], arrays["secs"]
            )
            schema = str(arrays["schema"])
            _check(workload)
        except READ_ERRORS as error:
            raise TrainingDataError(
                f"{os.fspath(path)} is no training data: {str(error) or type(error).__name__}; "
                "make it again with droplet-ms space features"
            ) from error
        return workload, schema


def _check(workload: MeasuredWorkload) -> None:
    features, secs = workload.features, workload.secs
    if features.ndim != 2 or secs.shape != features.shape[:1]:
        raise ValueError(
            f"its features are of shape {features.shape} and its times of {secs.shape}, expected "
            "(programs, width) and (programs,)"
        )
    if features.dtype != np.float32 or secs.dtype != np.float64:
        raise ValueError(
            f"its features are {features.dtype} and its times {secs.dtype}, expected float32 and "
            "float64"
        )
    if not isinstance(json.loads(workload.target), dict):
        raise ValueError(f"its target is {workload.target!r}, expected a JSON object")


def target_text(target: "Target") -> str:
    """A target as JSON with sorted keys; the text is the same for equal targets."""
    return json.dumps(json.loads(str(target)), sort_keys=True)


def merge(workloads: Iterable[MeasuredWorkload]) -> list[MeasuredWorkload]:
    """Concatenate the programs of each workload and target, in the given order."""
    groups: dict[tuple[str, str], list[MeasuredWorkload]] = {}
    for workload in workloads:
        groups.setdefault((workload.name, workload.target), []).append(workload)
    return [
        MeasuredWorkload(
            name,
            target,
            np.concatenate([workload.features for workload in group]),
            np.concatenate([workload.secs for workload in group]),
        )
        for (name, target), group in groups.items()
    ]


def select_target(
    workloads: Sequence[MeasuredWorkload], target: str | None = None
) -> list[MeasuredWorkload]:
    """Select the workloads of one target: times of different machines are not comparable.

    ``workloads``: workloads of any targets. ``target``: a substring of the target's text that no
    other target contains; None if there is only one target. Raises ``TrainingDataError`` if there
    are no workloads, or not exactly one target matches. The message lists the targets.
    """
    groups: dict[str, list[MeasuredWorkload]] = {}
    for workload in workloads:
        groups.setdefault(workload.target, []).append(workload)
    chosen = [text for text in groups if target is None or target in text]
    if len(chosen) == 1:
        return groups[chosen[0]]
    if not groups:
        raise TrainingDataError("there are no records to learn from")
    listed = "; ".join(
        f"{sum(len(workload.secs) for workload in group)} records of {text}"
        for text, group in groups.items()
    )
    reason = f"{len(groups)} targets" if target is None else f"{len(chosen)} like {target!r}"
    raise TrainingDataError(
        f"expected records of one target, found {reason}: {listed}; choose one with --target and a "
        "part of its text that no other has, and add --mix-targets to learn from all"
    )

# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""``droplet-ms pretrain``: learn from measurements, and say how well what was learned ranks."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from ...database import open_database
from ...report import align
from ..boosted_trees import Objective
from ..features.program_features import Extractor
from ..pretrained_model import ModelKind, PretrainedModel
from .ranking import pairwise_accuracy, top_k_score
from .training_data import MeasuredWorkload, TrainingDataError, read_database, select_target

_FOLDS = 5


def pretrain(
    workloads: Sequence[MeasuredWorkload],
    out: Path,
    *,
    model: ModelKind = "trees",
    objective: Objective = "regression",
    target: str | None = None,
    mix_targets: bool = False,
    seed: int = 0,
    stream: TextIO | None = None,
) -> PretrainedModel:
    """Train a model, print how well it ranks workloads that were held out, and write it.

    Parameters
    ----------
    workloads : Sequence[MeasuredWorkload]
        What to learn from.
    out : Path
        The file to write.
    model : str
        "trees" or "treegru"; the features are those of ``pretrained_model.EXTRACTORS``.
    objective : Objective
        "rank" or "regression".
    target : str | None
        Of which target; None where there is only one.
    mix_targets : bool
        Whether to learn from what other targets have measured too. Times of different targets are
        not compared with each other: a model learns how far a program is from the best of its
        workload on its target.
    seed : int
        Of the training.
    stream : TextIO | None
        Where to print; None for the standard output.

    Returns
    -------
    pretrained_model : PretrainedModel
        The model of all workloads.

    Raises
    ------
    TrainingDataError
        If there is nothing to learn from, or the targets are mixed up.
    """
    printed = stream or sys.stdout
    of_target = select_target(workloads, target)
    made_for = of_target[0].target
    chosen = [
        one for one in (workloads if mix_targets else of_target) if np.isfinite(one.secs).any()
    ]
    if not chosen:
        raise TrainingDataError("every measurement failed, so that there is nothing to learn")
    for text in dict.fromkeys(one.target for one in chosen):
        group = [one for one in chosen if one.target == text]
        records = sum(len(one.secs) for one in group)
        print(f"{records} records of {len(group)} workloads on {text}", file=printed)
    print(f"\n{format_held_out(chosen, objective, seed, model)}\n", file=printed)
    pretrained_model = PretrainedModel.learn(
        chosen, model=model, objective=objective, seed=seed, target=made_for
    )
    pretrained_model.save(out)
    print(f"wrote {out}, {out.stat().st_size / 1024:.0f} KiB", file=printed)
    return pretrained_model


def format_held_out(
    workloads: Sequence[MeasuredWorkload],
    objective: Objective,
    seed: int,
    model: ModelKind = "trees",
) -> str:
    """How well a model ranks each workload when it has learned from others only.

    The workloads are held out in turns, a fifth of them at once.

    Parameters
    ----------
    workloads : Sequence[MeasuredWorkload]
        All of one target, with a success each.
    objective : Objective
        "rank" or "regression".
    seed : int
        Of the training.
    model : str
        "trees" or "treegru".
    """
    if len(workloads) < 2:
        return "there is one workload, and none to hold out: how well it ranks others is not known"
    predicted: dict[int, np.ndarray] = {}
    folds = min(_FOLDS, len(workloads))
    for fold in range(folds):
        others = [one for index, one in enumerate(workloads) if index % folds != fold]
        learned = PretrainedModel.learn(others, model=model, objective=objective, seed=seed).model
        for index in range(fold, len(workloads), folds):
            predicted[index] = learned.predict(workloads[index].features)
    lines = [["held out", "records", "pairwise accuracy", "top-1", "top-5"]]
    for index, one in enumerate(workloads):
        lines.append([one.name, str(len(one.secs)), *_quality([predicted[index]], [one.secs])])
    scores = [predicted[index] for index in range(len(workloads))]
    all_records = str(sum(len(one.secs) for one in workloads))
    lines.append(["all", all_records, *_quality(scores, [one.secs for one in workloads])])
    return align(lines)


def _quality(scores: Sequence[np.ndarray], secs: Sequence[np.ndarray]) -> list[str]:
    accuracy = np.mean([pairwise_accuracy(*pair) for pair in zip(scores, secs, strict=True)])
    return [f"{accuracy:.3f}", *(f"{top_k_score(scores, secs, k):.3f}" for k in (1, 5))]


def read_databases(
    directories: Sequence[Path], *, extractor: Extractor | None = None
) -> list[MeasuredWorkload]:
    """What the MetaSchedule databases of some work directories hold, one workload once.

    Parameters
    ----------
    directories : Sequence[Path]
        The ``work_dir`` of each run.
    extractor : Extractor | None
        What makes the features; None for ``ProgramFeatures``.

    Raises
    ------
    TrainingDataError
        If a directory holds no database.
    ValueError
        If a database cannot be read; names the lines.
    """
    merged: dict[tuple[str, str], list[MeasuredWorkload]] = {}
    for directory in directories:
        if not (directory / "database_workload.json").exists():
            raise TrainingDataError(
                f"{directory} holds no database_workload.json; expected the work_dir of a run, or "
                "a measured space"
            )
        for workload in read_database(open_database(directory), extractor=extractor):
            merged.setdefault((workload.name, workload.target), []).append(workload)
    return [_merge(parts) for parts in merged.values()]


def _merge(parts: Sequence[MeasuredWorkload]) -> MeasuredWorkload:
    first = parts[0]
    return MeasuredWorkload(
        first.name,
        first.target,
        np.concatenate([part.features for part in parts]),
        np.concatenate([part.secs for part in parts]),
    )

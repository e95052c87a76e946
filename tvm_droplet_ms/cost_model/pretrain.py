# SPDX-License-Identifier: Apache-2.0
"""Trains a model, and reports how well it ranks held-out workloads."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np

from ...display.tables import align
from ..boosted_trees import Objective
from ..model_file import ModelKind
from ..pretrained_model import PretrainedModel
from ..throughput import pairwise_accuracy, top_k_score
from ..training_data import MeasuredWorkload, TrainingDataError, select_target

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
    """Train a model, print how well it ranks held-out workloads, and write the model.

    - ``workloads``: the training data.
    - ``out``: the file to write.
    - ``model``: "trees", "treegru", "pacm" or "pacm-stores"; the features must come from its
      extractor; see ``kinds.extractor_of``.
    - ``objective``: "rank" or "regression".
    - ``target``: a substring of the target's text that no other target contains; None if there is
      only one target.
    - ``mix_targets``: whether to learn from the records of the other targets too. Times of
      different targets are not compared with each other: a model learns the throughput of a program
      relative to the best of its workload on the same target.
    - ``seed``: seed of the training.
    - ``stream``: the stream to print to; None for standard output.

    Returns the model trained on all workloads. Raises ``TrainingDataError`` if there is no training
    data, or the target is ambiguous.
    """
    printed = stream or sys.stdout
    selected = select_target(workloads, target)
    chosen = [
        workload
        for workload in (workloads if mix_targets else selected)
        if np.isfinite(workload.secs).any()
    ]
    if not chosen:
        raise TrainingDataError("every measurement failed, so that there is nothing to learn")
    for text in dict.fromkeys(workload.target for workload in chosen):
        group = [workload for workload in chosen if workload.target == text]
        records = sum(len(workload.secs) for workload in group)
        print(f"{records} records of {len(group)} workloads on {text}", file=printed)
    print(f"\n{format_held_out(chosen, objective, seed, model)}\n", file=printed)
    pretrained_model = PretrainedModel.learn(
        chosen, model=model, objective=objective, seed=seed, target=selected[0].target
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
    """Format a table of how well a model ranks each workload after training on others only.

    In each fold, a fifth of the workloads is held out, each workload on all of its targets.

    - ``workloads``: at least one program of each has a time.
    - ``objective``: "rank" or "regression".
    - ``seed``: seed of the training.
    - ``model``: "trees", "treegru", "pacm" or "pacm-stores".
    """
    # Split by name: times of the same workload on another target would leak into training.
    names = list(dict.fromkeys(workload.name for workload in workloads))
    if len(names) < 2:
        return "there is one workload and none to hold out: how it ranks others is not known"
    folds = min(_FOLDS, len(names))
    fold_of = {name: number % folds for number, name in enumerate(names)}
    predicted: dict[int, np.ndarray] = {}
    for fold in range(folds):
        others = [workload for workload in workloads if fold_of[workload.name] != fold]
        learned = PretrainedModel.learn(others, model=model, objective=objective, seed=seed).model
        for index, workload in enumerate(workloads):
            if fold_of[workload.name] == fold:
                predicted[index] = learned.predict(workload.features)
    lines = [["held out", "records", "pairwise accuracy", "top-1", "top-5"]]
    scores = [predicted[index] for index in range(len(workloads))]
    secs = [workload.secs for workload in workloads]
    for workload, *ranked in zip(workloads, scores, secs, strict=True):
        quality = _quality(*([values] for values in ranked))
        lines.append([workload.name, str(len(workload.secs)), *quality])
    lines.append(["all", str(sum(map(len, secs))), *_quality(scores, secs)])
    return align(lines)


def _quality(scores: Sequence[np.ndarray], secs: Sequence[np.ndarray]) -> list[str]:
    # A workload without two different times has no pairs.
    accuracies = [pairwise_accuracy(*pair) for pair in zip(scores, secs, strict=True)]
    known = [accuracy for accuracy in accuracies if not np.isnan(accuracy)]
    accuracy = np.mean(known) if known else np.nan
    return [f"{accuracy:.3f}", *(f"{top_k_score(scores, secs, k):.3f}" for k in (1, 5))]

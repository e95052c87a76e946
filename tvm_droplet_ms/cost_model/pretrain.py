# SPDX-License-Identifier: Apache-2.0
"""Reads databases, trains a model on them, and reports how well it ranks held-out workloads."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import numpy as np
from tvm_ffi import structural_hash

from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import Database, TuningRecord
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate

from ..display.tables import align
from ..session.database import open_database
from .boosted_trees import Objective
from .features.program_features import Extractor, ProgramFeatures
from .model_file import ModelKind
from .pretrained_model import PretrainedModel
from .throughput import median_secs, pairwise_accuracy, top_k_score
from .training_data import MeasuredWorkload, TrainingDataError, merge, select_target, target_text

_BATCH = 64
"""Number of programs to extract features of at once, which bounds the memory use."""


def read_training_data(
    paths: Sequence[Path], *, extractor: Extractor | None = None
) -> list[MeasuredWorkload]:
    """Read work directories and files of training data.

    ``paths``: the ``work_dir`` of a tuning run, or a ``.npz`` file of ``MeasuredWorkload.save``.
    ``extractor``: the extractor of the features; None for ``ProgramFeatures``. Returns one entry
    for each name and target. Raises ``TrainingDataError`` if a path is neither, a file is damaged,
    or its features have another schema. Raises ``ValueError`` if a database cannot be read; the
    message names the lines.
    """
    used = extractor or ProgramFeatures()
    workloads: list[MeasuredWorkload] = []
    for path in paths:
        if path.suffix == ".npz":
            workloads.append(_read_file(path, used))
        else:
            workloads += read_database(_open(path), extractor=used)
    return merge(workloads)


def read_database(
    database: Database, *, extractor: Extractor | None = None
) -> list[MeasuredWorkload]:
    """Read a MetaSchedule database; the features are computed from the stored traces.

    ``database``: a database with records of any number of workloads. ``extractor``: the extractor
    of the features; None for ``ProgramFeatures``. Returns one entry for each workload and target,
    in the order of the records. Raises ``TrainingDataError`` if a record has no target.
    """
    groups: dict[tuple[str, str], list[TuningRecord]] = {}
    for record in database.get_all_tuning_records():
        if record.run_secs is not None and not len(record.run_secs):
            # The machinery failed to measure this candidate.
            continue
        name = f"{structural_hash(record.workload.mod) % (1 << 64):016x}"
        if record.target is None:
            raise TrainingDataError(
                f"a record of workload {name} names no target, and may have been measured on any; "
                "remove it"
            )
        groups.setdefault((name, target_text(record.target)), []).append(record)
    used = extractor or ProgramFeatures()
    return [_workload(name, target, group, used) for (name, target), group in groups.items()]


def _open(path: Path) -> Database:
    if not path.is_dir():
        raise TrainingDataError(
            f"{path} is no directory and no .npz file, expected the work_dir of a tuning run or a "
            "file of training data; to learn from a measured space of the package, run `droplet-ms "
            f"space features {path} --out DIR` first and give its .npz files"
        )
    if not (path / "database_workload.json").exists():
        raise TrainingDataError(
            f"{path} holds no database_workload.json, expected the work_dir of a tuning run"
        )
    return open_database(path)


def _read_file(path: Path, extractor: Extractor) -> MeasuredWorkload:
    workload, schema = MeasuredWorkload.load(path)
    if schema != extractor.schema:
        raise TrainingDataError(
            f"{path} has features of schema {schema!r}, expected {extractor.schema!r}; make it "
            "again with droplet-ms space features, or train another --model"
        )
    return workload


def _workload(
    name: str, target: str, records: Sequence[TuningRecord], extractor: Extractor
) -> MeasuredWorkload:
    context = TuneContext(records[0].workload.mod, target=records[0].target, num_threads=1)
    parts = []
    for start in range(0, len(records), _BATCH):
        candidates = [_candidate(record) for record in records[start : start + _BATCH]]
        parts.append(extractor.extract(context, candidates))
    secs = np.array([median_secs(record.run_secs) for record in records])
    return MeasuredWorkload(name, target, np.concatenate(parts), secs)


def _candidate(record: TuningRecord) -> MeasureCandidate:
    schedule = Schedule(record.workload.mod, debug_mask="none", error_render_level="fast")
    record.trace.apply_to_schedule(schedule, remove_postproc=False)
    return MeasureCandidate(schedule, ArgInfo.from_entry_func(schedule.mod, remove_preproc=True))


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

# SPDX-License-Identifier: Apache-2.0
"""Priors and drafts of a comparison, learned from all spaces except the run's own."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from tvm_ffi import structural_hash

from tvm.target import Target

from ...cost_model.pretrained_model import PretrainedModel
from ...cost_model.training_data import target_text
from ..definition import definition_of
from ..fit_draft import drafted_space_once, learn_draft
from ..source_digest import DRAFTING, LEARNING, source_digest
from ..training import read_space_once
from .replay import load_space
from .results import CompareError, file_digest

Lesson = tuple[Path, Path]
"""A space to learn from, and the file that caches its features or symbols."""

_SOURCES = {"prior": LEARNING, "draft": DRAFTING}
"""The sources that determine what is learned, by kind."""


def _learn(kind: str, lessons: Sequence[Lesson], target: Target, out: Path) -> None:
    if kind == "draft":
        learn_draft([drafted_space_once(file, kept) for file, kept in lessons], out)
        return
    workloads = [read_space_once(file, kept) for file, kept in lessons]
    PretrainedModel.learn(workloads, target=target_text(target)).save(out)


def learn_without_each(
    space_files: Sequence[Path],
    others: Sequence[Path],
    directory: Path,
    *,
    kind: str = "prior",
) -> Mapping[str, Path]:
    """Learn a "prior" or a "draft" for each space from the workloads of all others.

    ``others``: more spaces and samples to learn from. ``directory``: directory of the features and
    of the learned files. Existing files are reused unless the code that makes them has changed.

    Returns the file for each space in ``space_files``, by name. Raises ``CompareError`` if there is
    no other workload to learn from.
    """
    suffix, kept = ("draft", ".symbols.npz") if kind == "draft" else ("model", ".npz")
    files = {load_space(file).name: file for file in [*others, *space_files]}
    digests = {name: file_digest(file) for name, file in files.items()}
    hashes = {name: _workload_hash(file) for name, file in files.items()}
    code = source_digest(_SOURCES[kind])[:12]
    learned = {}
    for file in space_files:
        name = load_space(file).name
        taught = [other for other in sorted(files) if hashes[other] != hashes[name]]
        if not taught:
            raise CompareError(f"there is no other workload than {name} to learn from")
        key = hashlib.sha256("".join(digests[other] for other in taught).encode()).hexdigest()
        model = directory / "models" / code / f"{name}-{key[:12]}.{suffix}"
        if not model.exists():
            print(f"learning from {len(taught)} spaces for {name}", flush=True)
            features = directory / "features" / code
            features.mkdir(parents=True, exist_ok=True)
            model.parent.mkdir(parents=True, exist_ok=True)
            lessons = [(files[other], features / f"{digests[other]}{kept}") for other in taught]
            _learn(kind, lessons, Target(dict(load_space(file).target)), model)
        learned[name] = model
    return learned


def _workload_hash(file: Path) -> int:
    return int(structural_hash(definition_of(load_space(file)).mod))

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
"""What the runs of a comparison begin with, learned from all spaces but the run's own."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TextIO

import numpy as np
from tvm_ffi import structural_hash

from tvm.target import Target

from ...cost_model.pretrained_model import PretrainedModel
from ...cost_model.throughput import relative_throughput
from ...cost_model.training.training_data import target_text
from ...draft.draft_file import write_draft
from ...draft.fitted import fit_draft
from ..definitions import definition_of
from ..drafted_space import drafted_space_once
from ..training import read_space_once
from .both import write_both
from .replay import load_space
from .results import CompareError, file_digest
from .source_digest import DRAFTING, LEARNING, source_digest


@dataclass(frozen=True)
class Lesson:
    """A space to learn from.

    Parameters
    ----------
    file : Path
        The space.
    kept : Path
        Where what is computed of it is kept, without a suffix.
    """

    file: Path
    kept: Path


@dataclass(frozen=True)
class Learner:
    """Learns what a search begins with.

    Parameters
    ----------
    learn : Callable[[Sequence[Lesson], Target, Path], None]
        Learns from spaces, for a target, and writes a file.
    sources : Sequence[str]
        The code that determines it, relative to the package.
    """

    learn: Callable[[Sequence[Lesson], Target, Path], None]
    sources: Sequence[str]


def _learn_prior(lessons: Sequence[Lesson], target: Target, out: Path) -> None:
    workloads = [
        read_space_once(lesson.file, lesson.kept.with_suffix(".npz")) for lesson in lessons
    ]
    PretrainedModel.learn(workloads, target=target_text(target)).save(out)


def _learn_draft(lessons: Sequence[Lesson], target: Target, out: Path) -> None:
    spaces = [
        drafted_space_once(lesson.file, lesson.kept.with_suffix(".symbols.npz"))
        for lesson in lessons
    ]
    usable = [space.usable for space in spaces]
    learned = [n for n, rows in enumerate(usable) if rows.any()]
    symbols = [spaces[n].symbols[usable[n]] for n in learned]
    throughputs: list[np.ndarray] = [
        relative_throughput(spaces[n].secs)[usable[n]] for n in learned
    ]
    write_draft(out, fit_draft(symbols, throughputs), [spaces[n].name for n in learned])


def _learn_both(lessons: Sequence[Lesson], target: Target, out: Path) -> None:
    write_both(out, partial(_learn_prior, lessons, target), partial(_learn_draft, lessons, target))


LEARNERS: Mapping[str, Learner] = {
    "prior": Learner(_learn_prior, LEARNING),
    "draft": Learner(_learn_draft, DRAFTING),
    "prior and draft": Learner(_learn_both, (*LEARNING, *DRAFTING)),
}
"""By what is learned."""


def train_without_each(
    space_files: Sequence[Path],
    others: Sequence[Path],
    directory: Path,
    out: TextIO,
    *,
    kind: str = "prior",
) -> Mapping[str, Path]:
    """Learn for each space from the workloads of all others.

    Parameters
    ----------
    space_files : Sequence[Path]
        Spaces of the comparison.
    others : Sequence[Path]
        More spaces and samples to learn from.
    directory : Path
        Directory of the features and of what is learned; existing ones are used again, unless the
        code that makes them has changed.
    out : TextIO
        Stream for the progress.
    kind : str
        What is learned: one of ``LEARNERS``.

    Returns
    -------
    models : Mapping[str, Path]
        The file for each space in ``space_files``, by name.

    Raises
    ------
    CompareError
        If there is no other workload to learn from.
    """
    learner = LEARNERS[kind]
    files = {load_space(file).name: file for file in [*others, *space_files]}
    digests = {name: file_digest(file) for name, file in files.items()}
    hashes = {name: _workload_hash(file) for name, file in files.items()}
    code = source_digest(learner.sources)[:12]
    models = {}
    for file in space_files:
        name = load_space(file).name
        taught = [other for other in sorted(files) if hashes[other] != hashes[name]]
        if not taught:
            raise CompareError(f"there is no other workload than {name} to learn from")
        key = hashlib.sha256("".join(digests[other] for other in taught).encode()).hexdigest()
        suffix = {"prior": "model", "draft": "draft"}.get(kind, "zip")
        model = directory / "models" / code / f"{name}-{key[:12]}.{suffix}"
        if not model.exists():
            print(f"learning from {len(taught)} spaces for {name}", file=out, flush=True)
            features = directory / "features" / code
            lessons = [Lesson(files[other], features / digests[other]) for other in taught]
            model.parent.mkdir(parents=True, exist_ok=True)
            learner.learn(lessons, Target(dict(load_space(file).target)), model)
        models[name] = model
    return models


def _workload_hash(file: Path) -> int:
    return int(structural_hash(definition_of(load_space(file)).mod))

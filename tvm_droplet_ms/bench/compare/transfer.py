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
"""Cost models for the runs of a comparison, each learned from all spaces but the run's own."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TextIO

import numpy as np
from tvm_ffi import structural_hash

from tvm.s_tir.meta_schedule.cost_model import XGBModel
from tvm.s_tir.meta_schedule.cost_model.xgb_model import FeatureGroup
from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm.target import Target

from ...cost_model.pretrained_model import PretrainedModel
from ...cost_model.training.training_data import MeasuredWorkload, target_text
from ..definitions import find_definition
from ..experience import MOST_PROGRAMS, read_candidates, read_space_once
from ..files import measured_modules
from .results import CompareError, file_digest
from .runs import load_space


def learn_without_each(
    kind: str, space_files: Sequence[Path], others: Sequence[Path], directory: Path, out: TextIO
) -> Mapping[str, Path]:
    """A model for each space, of the workloads of all others.

    Parameters
    ----------
    kind : str
        One of the kinds of ``results.KINDS``.
    space_files : Sequence[Path]
        The spaces that are compared on.
    others : Sequence[Path]
        Spaces to learn from too.
    directory : Path
        Where the features and the models are kept; what is there is not made again.
    out : TextIO
        Where to print what is being done.

    Returns
    -------
    models : Mapping[str, Path]
        The file of the model of each space in ``space_files``, by name.

    Raises
    ------
    CompareError
        If there is no other workload to learn from.
    """
    files = {measured_modules(load_space(file)).name: file for file in [*others, *space_files]}
    digests = {name: file_digest(file) for name, file in files.items()}
    hashes = {name: _workload_hash(file) for name, file in files.items()}
    models = {}
    for file in space_files:
        name = measured_modules(load_space(file)).name
        taught = [other for other in sorted(files) if hashes[other] != hashes[name]]
        if not taught:
            raise CompareError(f"there is no other workload than {name} to learn from")
        key = hashlib.sha256("".join(digests[other] for other in taught).encode()).hexdigest()
        model = directory / "models" / f"{name}-{key[:12]}.{kind.replace(' ', '-')}"
        if not model.exists():
            print(f"{kind}: learning from {len(taught)} spaces for {name}", file=out, flush=True)
            model.parent.mkdir(parents=True, exist_ok=True)
            learned_from = [files[other] for other in taught]
            _LEARNERS[kind](learned_from, directory / "features", model, _target(file))
        models[name] = model
    return models


def _learn(files: Sequence[Path], cache: Path, model: Path, target: str) -> None:
    PretrainedModel.learn(_read(files, cache), target=target).save(model)


def _learn_ranks(files: Sequence[Path], cache: Path, model: Path, target: str) -> None:
    PretrainedModel.learn(_read(files, cache), objective="rank", target=target).save(model)


def _learn_inverted(files: Sequence[Path], cache: Path, model: Path, target: str) -> None:
    """Learn the opposite of what was measured, but for what failed."""
    inverted = [replace(one, secs=_inverted(one.secs)) for one in _read(files, cache)]
    PretrainedModel.learn(inverted, target=target).save(model)


def _inverted(secs: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(secs), 1.0 / secs, np.inf)


def _read(files: Sequence[Path], cache: Path) -> list[MeasuredWorkload]:
    return [read_space_once(file, cache / f"{file_digest(file)}.npz") for file in files]


def _learn_xgb(files: Sequence[Path], _: Path, model: Path, __: str) -> None:
    """Train MetaSchedule's model on its own features, in its own way, and save it as it does."""
    learner = XGBModel._cls(num_tuning_cores=1, verbose_eval=0)
    groups = [_feature_group(file) for file in files]
    learner.data = {group.group_hash: group for group in groups}
    learner.data_size = sum(len(group.costs) for group in groups)
    features = [one for group in groups for one in group.features]
    learner._train(features, np.concatenate([group.min_cost / group.costs for group in groups]))
    partial = model.with_name(model.name + ".partial.tar")
    learner.save(str(partial))
    partial.replace(model)


@cache
def _feature_group(file: Path) -> FeatureGroup:
    space, context, candidates, kept = read_candidates(file, most=MOST_PROGRAMS)
    stores = PerStoreFeature().extract_from(context, candidates)
    costs = np.array([space.times[index] for index in kept], dtype=np.float32)
    # What the model takes for the time of a failure.
    costs[~np.isfinite(costs)] = 1e10
    return FeatureGroup(space.name, [one.numpy().astype("float32") for one in stores], costs)


_LEARNERS: dict[str, Callable[[Sequence[Path], Path, Path, str], None]] = {
    "transfer": _learn,
    "rank transfer": _learn_ranks,
    "inverted transfer": _learn_inverted,
    "xgb transfer": _learn_xgb,
}


def _target(file: Path) -> str:
    return target_text(Target(dict(measured_modules(load_space(file)).target)))


def _workload_hash(file: Path) -> int:
    space = measured_modules(load_space(file))
    return int(structural_hash(find_definition(space.definition).mod))

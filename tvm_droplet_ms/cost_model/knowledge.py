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
"""What was learned from other workloads, and the file that it is kept in."""

import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xgboost

from .boosted_trees import Objective, Trees
from .experience import Workload
from .features import Extractor, LoopTrees, ProgramFeatures
from .tree_gru import TreeGRU

FORMAT = "tvm-droplet-ms cost model"

_MOST_PROGRAMS = 4096
"""How many programs of one workload to learn from: more of one teach little of another."""

_ROUNDS = 200

ModelKind = Literal["trees", "treegru"]

EXTRACTORS: dict[ModelKind, Callable[[], Extractor]] = {
    "trees": ProgramFeatures,
    "treegru": LoopTrees,
}
"""What each kind of model sees of a program."""

_FILES: dict[ModelKind, str] = {"trees": "trees.ubj", "treegru": "treegru.npz"}


class ModelFileError(ValueError):
    """A file holds no model that this version can use; the message says why and what to do."""


@dataclass(frozen=True)
class Knowledge:
    """A model of the workloads of one target.

    Parameters
    ----------
    model : Trees | TreeGRU
        The model.
    target : str
        The target, as ``experience.target_text``.
    summary : Mapping[str, Any]
        What it was trained on, as JSON.
    """

    model: Trees | TreeGRU
    target: str
    summary: Mapping[str, Any]

    @property
    def kind(self) -> ModelKind:
        """Which kind of model it is."""
        return "trees" if isinstance(self.model, Trees) else "treegru"

    @property
    def targets(self) -> set[str]:
        """The target that it is for, and those of what it has learned."""
        learned = (one.get("target") for one in self.summary["workloads"])
        return {self.target, *(json.dumps(one, sort_keys=True) for one in learned if one)}

    def extractor(self) -> Extractor:
        """What makes the features that the model was trained on."""
        return EXTRACTORS[self.kind]()

    def represent(self, features: np.ndarray) -> np.ndarray:
        """What a model of a single run may learn from: features, or what the network keeps of them.

        Parameters
        ----------
        features : np.ndarray
            Those of the extractor, of shape ``(programs, width)``.

        Returns
        -------
        represented : np.ndarray
            Of shape ``(programs, numbers)``, float32.
        """
        return self.model.embed(features) if isinstance(self.model, TreeGRU) else features

    @staticmethod
    def learn(
        workloads: Sequence[Workload],
        *,
        model: ModelKind = "trees",
        objective: Objective = "regression",
        seed: int = 0,
        rounds: int = _ROUNDS,
        target: str | None = None,
    ) -> "Knowledge":
        """Train on the measurements of some workloads.

        For trees a workload counts with the square root of its programs: more of one teach more of
        it, and little of another.

        Parameters
        ----------
        workloads : Sequence[Workload]
            At least one, with the features of ``EXTRACTORS[model]``. Only the programs of one
            workload on one target are compared with each other.
        model : str
            "trees", or "treegru" for a recurrent network on the loop tree.
        objective : Objective
            "rank" or "regression".
        seed : int
            Of the model, and of the choice among the programs of a workload that has many.
        rounds : int
            The number of trees.
        target : str | None
            What the model is for; None for the target of the first workload.

        Raises
        ------
        ImportError
            If "treegru" is to be trained and PyTorch is not installed.
        ValueError
            If the model is of no such kind, or the features are another's.
        """
        if model not in EXTRACTORS:
            raise ValueError(f"model is {model!r}, expected one of {', '.join(EXTRACTORS)}")
        _check_width(workloads, model)
        generator = np.random.default_rng(seed)
        rows = [np.sort(generator.permutation(len(one.secs))[:_MOST_PROGRAMS]) for one in workloads]
        counts = [len(row) for row in rows]
        pairs = list(zip(workloads, rows, strict=True))
        features = np.concatenate([one.features[row] for one, row in pairs])
        throughput = np.concatenate([one.throughput[row] for one, row in pairs])
        numbers = np.repeat(np.arange(len(workloads)), counts)
        summary: dict[str, Any] = {
            "workloads": [
                {
                    "name": one.name,
                    "target": json.loads(one.target),
                    "records": len(one.secs),
                    "learned from": count,
                }
                for one, count in zip(workloads, counts, strict=True)
            ],
            "seed": seed,
        }
        made_for = workloads[0].target if target is None else target
        if model == "treegru":
            network = TreeGRU.fit(features, throughput, numbers, objective=objective, seed=seed)
            return Knowledge(network, made_for, summary)
        trees = Trees.fit(
            features,
            throughput,
            numbers,
            objective=objective,
            rounds=rounds,
            seed=seed,
            weights=_weights(counts),
        )
        return Knowledge(trees, made_for, summary | {"rounds": rounds})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a ZIP archive of ``header.json`` and the model; whole or not there."""
        header = {
            "format": FORMAT,
            "model": self.kind,
            "schema": self.extractor().schema,
            "target": json.loads(self.target),
            "tvm": metadata.version("apache-tvm"),
            "xgboost": xgboost.__version__,
            "objective": self.model.objective,
            "intercept": self.model.intercept,
            "slope": self.model.slope,
            "summary": dict(self.summary),
        }
        partial = Path(f"{os.fspath(path)}.partial")
        partial.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", json.dumps(header, indent=1))
            archive.writestr(_FILES[self.kind], self.model.to_bytes())
        partial.replace(path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Knowledge":
        """Read what ``save`` has written, also before there was another model than trees.

        Raises
        ------
        ModelFileError
            If the file cannot be read, is no model, or was made of other features.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                header = json.loads(archive.read("header.json"))
                if header["format"] != FORMAT:
                    raise ValueError(f"its format is {header['format']!r}, expected {FORMAT!r}")
                kind = header.get("model", "trees")
                if kind not in _FILES:
                    raise ValueError(f"its model is {kind!r}, expected {' or '.join(_FILES)}")
                content = archive.read(_FILES[kind])
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise ModelFileError(
                f"{os.fspath(path)} is no cost model: {error}; make one with droplet-ms pretrain"
            ) from error
        schema = EXTRACTORS[kind]().schema
        if header["schema"] != schema:
            raise ModelFileError(
                f"{os.fspath(path)} was trained on features of schema {header['schema']!r} with "
                f"TVM {header['tvm']}, expected {schema!r}; train it again with droplet-ms pretrain"
            )
        read = Trees.from_bytes if kind == "trees" else TreeGRU.from_bytes
        try:
            model = read(content, header["objective"], header["intercept"], header["slope"])
        except ValueError as error:
            raise ModelFileError(f"{os.fspath(path)} is no cost model: {error}") from error
        return Knowledge(model, json.dumps(header["target"], sort_keys=True), header["summary"])


def _weights(counts: Sequence[int]) -> np.ndarray:
    """How much each program counts, one workload's after the other's, 1 on average."""
    weights = np.repeat(np.array(counts, dtype=float) ** -0.5, counts)
    return np.asarray(weights / weights.mean())


def _check_width(workloads: Sequence[Workload], model: ModelKind) -> None:
    width = EXTRACTORS[model]().width
    for one in workloads:
        if one.features.shape[1] != width:
            raise ValueError(
                f"programs of {one.name} have {one.features.shape[1]} features, expected the "
                f"{width} that {model} learn from"
            )

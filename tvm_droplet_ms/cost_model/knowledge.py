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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from .boosted_trees import Objective, Trees
from .experience import Workload
from .features import SCHEMA

FORMAT = "tvm-droplet-ms cost model"

_MOST_PROGRAMS = 1024
"""How many programs of one workload to learn from: more of one teach little of another."""

_ROUNDS = 200


class ModelFileError(ValueError):
    """A file holds no model that this version can use; the message says why and what to do."""


@dataclass(frozen=True)
class Knowledge:
    """A model of the workloads of one target.

    Parameters
    ----------
    trees : Trees
        The model.
    target : str
        The target, as ``experience.target_text``.
    summary : Mapping[str, Any]
        What it was trained on, as JSON.
    """

    trees: Trees
    target: str
    summary: Mapping[str, Any]

    @staticmethod
    def learn(
        workloads: Sequence[Workload],
        *,
        objective: Objective = "regression",
        seed: int = 0,
        rounds: int = _ROUNDS,
    ) -> "Knowledge":
        """Train on the measurements of some workloads, each of which counts as much.

        Parameters
        ----------
        workloads : Sequence[Workload]
            At least one, all of one target.
        objective : Objective
            "rank" or "regression".
        seed : int
            Of the trees, and of the choice among the programs of a workload that has many.
        rounds : int
            The number of trees.
        """
        generator = np.random.default_rng(seed)
        rows = [np.sort(generator.permutation(len(one.secs))[:_MOST_PROGRAMS]) for one in workloads]
        counts = [len(row) for row in rows]
        trees = Trees.fit(
            np.concatenate([one.features[row] for one, row in zip(workloads, rows, strict=True)]),
            np.concatenate([one.throughput[row] for one, row in zip(workloads, rows, strict=True)]),
            np.repeat(np.arange(len(workloads)), counts),
            objective=objective,
            rounds=rounds,
            seed=seed,
            weights=np.repeat([sum(counts) / len(counts) / count for count in counts], counts),
        )
        summary = {
            "workloads": [
                {"name": one.name, "records": len(one.secs), "learned from": count}
                for one, count in zip(workloads, counts, strict=True)
            ],
            "rounds": rounds,
            "seed": seed,
        }
        return Knowledge(trees, workloads[0].target, summary)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a ZIP archive of ``header.json`` and ``trees.ubj``; whole or not there."""
        header = {
            "format": FORMAT,
            "schema": SCHEMA,
            "target": json.loads(self.target),
            "tvm": metadata.version("apache-tvm"),
            "xgboost": xgboost.__version__,
            "objective": self.trees.objective,
            "intercept": self.trees.intercept,
            "slope": self.trees.slope,
            "summary": dict(self.summary),
        }
        partial = Path(f"{os.fspath(path)}.partial")
        partial.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("header.json", json.dumps(header, indent=1))
            archive.writestr("trees.ubj", bytes(self.trees.booster.save_raw("ubj")))
        partial.replace(path)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Knowledge":
        """Read what ``save`` has written.

        Raises
        ------
        ModelFileError
            If the file cannot be read, is no model, or was made of other features.
        """
        try:
            with zipfile.ZipFile(path) as archive:
                header = json.loads(archive.read("header.json"))
                raw = archive.read("trees.ubj")
            if header["format"] != FORMAT:
                raise ValueError(f"its format is {header['format']!r}, expected {FORMAT!r}")
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise ModelFileError(
                f"{os.fspath(path)} is no cost model: {error}; make one with droplet-ms pretrain"
            ) from error
        if header["schema"] != SCHEMA:
            raise ModelFileError(
                f"{os.fspath(path)} was trained on features of schema {header['schema']!r} with "
                f"TVM {header['tvm']}, expected {SCHEMA!r}; train it again with droplet-ms pretrain"
            )
        booster = xgboost.Booster({"nthread": 1})
        booster.load_model(bytearray(raw))
        trees = Trees(booster, header["objective"], header["intercept"], header["slope"])
        return Knowledge(trees, json.dumps(header["target"], sort_keys=True), header["summary"])

# SPDX-License-Identifier: Apache-2.0
"""PretrainedModel: a model trained on other workloads, and its file."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from tvm.target import Target

from ..design_space.matrix_tiles.find_matrix import matrix_units
from ..session.archive import READ_ERRORS
from .boosted_trees import Objective, Trees
from .features.program_features import Extractor
from .instruction_set import WIDEST, instruction_set
from .kinds import Network, extractor_of, network_kind
from .model_file import MEMBERS, ModelFileError, ModelKind, damaged, read_model, write_model
from .training_data import MeasuredWorkload

MAX_PROGRAMS = 4096
"""Maximum number of training programs per workload; more teach little about other workloads."""

_ROUNDS = 200

_DIRECTORY = Path(__file__).parent / "pretrained"


@dataclass(frozen=True)
class PretrainedModel:
    """A model of the workloads of one target. It is immutable, so that users can share it.

    Parameters
    ----------
    model : Trees | Network
        The model.
    target : str
        The target of the model, in the format of ``training_data.target_text``.
    summary : Mapping[str, Any]
        Statistics of the training data, as JSON: "workloads" has the name, the target, the number
        of records and the number of records learned from for each workload.
    """

    model: Trees | Network
    target: str
    summary: Mapping[str, Any]

    @property
    def kind(self) -> ModelKind:
        """The kind of the model."""
        return self.model.kind

    @property
    def targets(self) -> set[str]:
        """The target of the model, and the targets of its training data."""
        learned = (workload.get("target") for workload in self.summary["workloads"])
        texts = (json.dumps(target, sort_keys=True) for target in learned if target)
        return {self.target, *texts}

    @cached_property
    def instruction_sets(self) -> frozenset[str]:
        """The instruction sets of ``targets``; see ``instruction_set``."""
        return frozenset(instruction_set(Target(json.loads(text))) for text in self.targets)

    def extractor(self) -> Extractor:
        """Make the extractor of the features that the model was trained on."""
        return extractor_of(self.kind)

    def represent(self, features: np.ndarray) -> np.ndarray:
        """Compute the inputs of a model that learns during a run.

        For trees, these are the features; for networks, the memory or the last states.

        Parameters
        ----------
        features : np.ndarray
            Features of ``extractor``, of shape ``(programs, width)``.

        Returns
        -------
        represented : np.ndarray
            Array of shape ``(programs, numbers)``, float32.
        """
        return features if isinstance(self.model, Trees) else self.model.embed(features)

    @staticmethod
    def learn(
        workloads: Sequence[MeasuredWorkload],
        *,
        model: ModelKind = "trees",
        objective: Objective = "regression",
        seed: int = 0,
        rounds: int = _ROUNDS,
        target: str | None = None,
    ) -> "PretrainedModel":
        """Train a model on the measurements of some workloads.

        Trees weight a workload by the square root of its number of programs: more programs teach
        more about their own workload, but little about others.

        Parameters
        ----------
        workloads : Sequence[MeasuredWorkload]
            At least one workload, with the features of ``extractor_of(model)``. Only the programs
            of one workload on one target are compared with each other.
        model : str
            "trees"; "treegru", a recurrent network on the loop tree; "pacm", attention over the
            data movements; or "pacm-stores", "pacm" with MetaSchedule's features of stores. The
            last three are networks of the package ``tvm_droplet_papers``.
        objective : Objective
            "rank" or "regression".
        seed : int
            Seed of the training, and of the sampling from workloads with more than ``MAX_PROGRAMS``
            programs.
        rounds : int
            The number of trees.
        target : str | None
            The target that the model is for; None for the target of the first workload.

        Raises
        ------
        ImportError
            If a network is to be trained and JAX is not installed.
        ValueError
            If the kind of model is unknown, its package is not installed, or the features belong to
            another kind.
        """
        if model not in MEMBERS:
            raise ValueError(f"model is {model!r}, expected one of {', '.join(MEMBERS)}")
        _check_width(workloads, model)
        generator = np.random.default_rng(seed)
        rows = [
            np.sort(generator.permutation(len(workload.secs))[:MAX_PROGRAMS])
            for workload in workloads
        ]
        counts = [len(row) for row in rows]
        chosen = list(zip(workloads, rows, strict=True))
        features = np.concatenate([workload.features[row] for workload, row in chosen])
        throughput = np.concatenate([workload.throughput[row] for workload, row in chosen])
        numbers = np.repeat(np.arange(len(workloads)), counts)
        summary: dict[str, Any] = {
            "workloads": [
                {
                    "name": workload.name,
                    "target": json.loads(workload.target),
                    "records": len(workload.secs),
                    "learned from": count,
                }
                for workload, count in zip(workloads, counts, strict=True)
            ],
            "seed": seed,
        }
        made_for = workloads[0].target if target is None else target
        if model != "trees":
            network = network_kind(model).network.fit(
                features, throughput, numbers, objective=objective, seed=seed
            )
            return PretrainedModel(network, made_for, summary)
        trees = Trees.fit(
            features,
            throughput,
            numbers,
            objective=objective,
            rounds=rounds,
            seed=seed,
            weights=_weights(counts),
        )
        return PretrainedModel(trees, made_for, summary | {"rounds": rounds})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model's file, which is complete or absent."""
        header = {
            "schema": self.extractor().schema,
            "target": json.loads(self.target),
            "tvm": metadata.version("apache-tvm"),
            "xgboost": xgboost.__version__,
            "objective": self.model.objective,
            "intercept": self.model.intercept,
            "slope": self.model.slope,
            "summary": dict(self.summary),
        }
        write_model(path, self.kind, header, self.model.to_bytes())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "PretrainedModel":
        """Read a file that ``save`` wrote.

        Raises
        ------
        ModelFileError
            If the file cannot be read, is damaged, is not a model, was trained on features of
            another schema, or holds a network whose package is not installed.
        """
        header, content = read_model(path)
        kind: ModelKind = header["model"]
        try:
            schema = extractor_of(kind).schema
        except ValueError as error:
            raise ModelFileError(f"{os.fspath(path)}: {error}") from error
        if header["schema"] != schema:
            raise ModelFileError(
                f"{os.fspath(path)} was trained on features of schema {header['schema']!r} with "
                f"TVM {header['tvm']}, expected {schema!r}; train it again with droplet-ms pretrain"
            )
        try:
            # xgboost's own error and TVM's error about a target are ValueErrors.
            line = header["intercept"], header["slope"]
            reads = Trees if kind == "trees" else network_kind(kind).network
            model = reads.from_bytes(content, header["objective"], *line)
            target = json.dumps(header["target"], sort_keys=True)
            loaded = PretrainedModel(model, target, header["summary"])
            if loaded.kind != kind:
                raise ValueError(f"its parameters are of {loaded.kind}, expected {kind}")
            for text in loaded.targets:
                Target(json.loads(text))
        except READ_ERRORS as error:
            raise damaged(path, error) from error
        return loaded


def shipped_model(target: Target) -> PretrainedModel | None:
    """The package's model for a target, read from its file once per process.

    The package has three models for CPUs: with matrix tiles, with AVX-512, and with neither.
    Returns None for other kinds of targets.
    """
    if target.kind.name != "llvm":
        return None
    name = "llvm.model" if instruction_set(target) == WIDEST else "llvm_avx2.model"
    return _load_once(_DIRECTORY / ("llvm_amx.model" if matrix_units(target) else name))


@cache
def _load_once(path: Path) -> PretrainedModel:
    return PretrainedModel.load(path)


def _weights(counts: Sequence[int]) -> np.ndarray:
    """The weight of each program, workload after workload; the mean is 1."""
    weights = np.repeat(np.array(counts, dtype=float) ** -0.5, counts)
    return np.asarray(weights / weights.mean())


def _check_width(workloads: Sequence[MeasuredWorkload], model: ModelKind) -> None:
    width = extractor_of(model).width
    for workload in workloads:
        if workload.features.shape[1] != width:
            raise ValueError(
                f"programs of {workload.name} have {workload.features.shape[1]} features, expected "
                f"the {width} that {model} learn from"
            )

# SPDX-License-Identifier: Apache-2.0

"""Both networks on synthetic programs with a known ranking."""

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from network_cases import TARGET, movements, pacm, tree_gru, trees

from tvm_droplet_ms.cli import main
from tvm_droplet_ms.cost_model import ModelFileError, PretrainedModel
from tvm_droplet_ms.cost_model.boosted_trees import OBJECTIVES
from tvm_droplet_ms.cost_model.throughput import pairwise_accuracy, relative_throughput
from tvm_droplet_papers.cost_models.dataflow import TOKEN_WIDTH, TOKENS
from tvm_droplet_papers.cost_models.network_model import NetworkModel


class Kind(NamedTuple):
    name: str
    programs: Callable[..., tuple[np.ndarray, np.ndarray]]
    untrained: Callable[[], NetworkModel]
    package: str
    width: str

    @property
    def network(self) -> type[NetworkModel]:
        return type(self.untrained())

    def learnable(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Programs of two workloads: their features, throughputs and workloads."""
        (features, secs) = self.programs(0)
        more, more_secs = self.programs(2)
        throughput = [relative_throughput(part) for part in (secs, more_secs)]
        workloads = np.repeat([0, 1], [len(secs), len(more_secs)])
        return np.concatenate([features, more]), np.concatenate(throughput), workloads

    def fitted(self, objective: str, seed: int = 0) -> NetworkModel:
        return self.network.fit(*self.learnable(), objective=objective, seed=seed)


PACM = Kind("pattern_aware", movements, pacm, "pacm", f"{TOKENS} data movem")
TREE_GRU = Kind("tree_gru", trees, tree_gru, "treegru", "the .* of loop")
KINDS = [PACM, TREE_GRU]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@lru_cache
def known(kind: Kind, objective: str) -> NetworkModel:
    pytest.importorskip("jax")
    with pytest.MonkeyPatch.context() as patch:
        if kind is PACM:
            patch.setattr("tvm_droplet_papers.cost_models.training.EPOCHS", 1)
            patch.setattr("tvm_droplet_papers.cost_models.training.MIN_STEPS", 80)
        return kind.fitted(objective)


# The squared error of the throughput hardly depends on the order of the slowest programs.
@pytest.mark.parametrize(
    "kind, objective, least",
    [
        (PACM, "rank", 0.75),
        (PACM, "regression", 0.7),
        (TREE_GRU, "rank", 0.8),
        (TREE_GRU, "regression", 0.65),
    ],
)
def test_ranks_unseen_programs(kind: Kind, objective: str, least: float):
    """The accuracy of a random ranking is 0.5."""
    features, secs = kind.programs(1)
    assert pairwise_accuracy(known(kind, objective).predict(features), secs) > least


@each_kind
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_predicts_relative_throughput(kind: Kind, objective: str):
    """The unit of the objective's raw scores does not matter."""
    features, expected, _ = kind.learnable()
    predicted = known(kind, objective).predict(features)
    assert predicted.mean() == pytest.approx(expected.mean(), abs=0.05)


@each_kind
def test_same_seed_gives_same_network(kind: Kind, short_training: None):
    first, again, other = (kind.fitted("rank", seed).parameters for seed in (0, 0, 1))
    for name, value in first.items():
        np.testing.assert_array_equal(value, again[name])
    assert not np.array_equal(first["output"], other["output"])


@each_kind
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_trains_on_single_program(kind: Kind, objective: str, short_training: None):
    features, _ = kind.programs(0, 2)
    one = np.zeros(1, dtype=int)
    model = kind.network.fit(features[:1], np.ones(1), one, objective=objective, seed=0)
    assert np.isfinite(model.predict(features)).all()


@each_kind
def test_prediction_does_not_depend_on_batch(kind: Kind):
    features, _ = kind.programs(2)
    model = kind.untrained()
    alone = np.concatenate([model.predict(row[None]) for row in features])
    np.testing.assert_allclose(model.predict(features), alone, atol=1e-5)
    assert np.ptp(alone) > 0.1
    assert model.predict(features[:0]).shape == (0,)


@each_kind
def test_serialization_round_trip(kind: Kind):
    features, _ = kind.programs(2, 40)
    model = kind.untrained()
    again = kind.network.from_bytes(model.to_bytes(), "rank", 0.25, 2.0)
    assert again.to_bytes() == model.to_bytes()
    np.testing.assert_array_equal(again.predict(features), 0.25 + 2.0 * model.predict(features))
    for content in (b"", b"{"):
        with pytest.raises((ValueError, EOFError)):
            kind.network.from_bytes(content, "rank", 0.0, 1.0)


@each_kind
def test_load_rejects_parameters_of_other_shape(kind: Kind, tmp_path):
    odd = kind.network({"output": np.zeros(3), "statement_1": np.zeros((37, 1))}, "rank")
    PretrainedModel(odd, TARGET, {"workloads": []}).save(tmp_path / "odd.model")
    with pytest.raises(ModelFileError, match=r"odd.model is no cost model: its parameters are of"):
        PretrainedModel.load(tmp_path / "odd.model")


@pytest.mark.parametrize(
    "kind, width",
    [
        (PACM, 0),
        (PACM, 7),
        (PACM, TOKENS * TOKEN_WIDTH),
        (PACM, movements(0)[0].shape[1] + 1),
        (TREE_GRU, 7),
    ],
)
def test_rejects_wrong_feature_width(kind: Kind, width: int):
    with pytest.raises(ValueError, match=f"have {width} features, expected {kind.width}"):
        kind.network.fit(
            np.zeros((3, width)), np.ones(3), np.zeros(3, dtype=int), objective="rank", seed=0
        )


@each_kind
def test_without_jax_networks_score_and_do_not_train(kind: Kind, no_jax: None):
    features, _ = kind.programs(0)
    assert np.isfinite(kind.untrained().predict(features)).all()
    with pytest.raises(ImportError, match=rf"pip install './papers\[{kind.package}\]'"):
        kind.fitted("rank")


def test_without_the_papers_networks_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "some.model"
    PretrainedModel(pacm(), TARGET, {"workloads": []}).save(path)
    monkeypatch.setitem(sys.modules, "tvm_droplet_papers.cost_models", None)
    words = "of kind 'pacm' needs the package tvm_droplet_papers: .*pip install ./papers"
    with pytest.raises(ModelFileError, match=f"some.model: a model {words}"):
        PretrainedModel.load(path)
    out = str(tmp_path / "out")
    assert main(["pretrain", "missing.npz", "--model", "pacm", "--out", out]) == 1
    assert main(["space", "features", "dense", "--model", "pacm", "--out", out]) == 1
    for line in capsys.readouterr().err.splitlines():
        assert re.search(words, line)

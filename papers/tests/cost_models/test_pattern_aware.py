# SPDX-License-Identifier: Apache-2.0

"""What is PaCM's own: its forward pass, its loss, its model files and its commands."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from network_cases import TARGET, movements, pacm

from tvm_droplet_ms.cli import main
from tvm_droplet_ms.cost_model import ModelFileError, PretrainedModel
from tvm_droplet_ms.cost_model.training_data import MeasuredWorkload
from tvm_droplet_papers.cost_models import DataFlow, DataFlowStores
from tvm_droplet_papers.cost_models.dataflow import (
    LEVELS,
    STATEMENTS,
    TOKEN_WIDTH,
    TOKENS,
)
from tvm_droplet_papers.cost_models.pattern_aware import HEADS, TOKEN_HIDDEN, split


def test_jax_and_numpy_scores_agree():
    """JAX scores programs with all their empty rows, NumPy without those of the whole batch."""
    jax = pytest.importorskip("jax")
    from tvm_droplet_papers.cost_models.pattern_aware import states

    model = pacm()
    features, _ = movements(2)
    empty = np.zeros_like(features[:1])
    for programs in (features, features[:1], np.concatenate([features[:3], empty]), empty):
        scored = jax.jit(lambda rows: states(model.parameters, *split(rows), jax.numpy))(programs)
        np.testing.assert_allclose(np.asarray(scored), model.embed(programs), atol=2e-5)


def test_prediction_ignores_order_of_movements_and_of_statements():
    """A movement that has gone does change the prediction."""
    features, _ = movements(3, 1)
    tokens, statements = split(features)
    count = int(tokens[0, :, : len(LEVELS)].sum())
    order = [*np.random.default_rng(0).permutation(count), *range(count, TOKENS)]
    moved = np.concatenate([tokens[0, order].ravel(), statements[0, ::-1].ravel()])
    without = features.copy()
    split(without)[0][0, 0] = 0.0
    model = pacm()
    same, other, expected = model.embed(np.stack([moved, without[0], features[0]]))
    np.testing.assert_allclose(same, expected, atol=1e-5)
    assert np.abs(other - expected).max() > 1e-3


def test_forward_pass_matches_hand_computed_values():
    """One head and one movement at a time."""
    features, _ = movements(4, 1)
    model = pacm()
    given = {name: value.astype(float) for name, value in model.parameters.items()}
    tokens, statements = (part[0].astype(float) for part in split(features))

    def layer(values: np.ndarray, name: str) -> np.ndarray:
        return np.maximum(values @ given[name] + given[f"{name}_bias"], 0.0)

    def normal(values: np.ndarray) -> np.ndarray:
        return (values - values.mean()) / np.sqrt(values.var() + 1e-5)

    present = [row for row in tokens if row[: len(LEVELS)].any()]
    moved = [
        layer(layer((row - given["token_mean"]) / given["token_scale"], "token_1"), "token_2")
        for row in present
    ]
    size = TOKEN_HIDDEN // HEADS
    query, key, value = (
        [np.split(row @ part, HEADS) for row in moved]
        for part in np.split(given["attention"], 3, axis=1)
    )
    flow = np.zeros(TOKEN_HIDDEN)
    for mine, row in zip(query, moved, strict=True):
        taken = []
        for head in range(HEADS):
            likeness = np.array([mine[head] @ other[head] for other in key]) / np.sqrt(size)
            weights = np.exp(likeness) / np.exp(likeness).sum()
            taken.append(sum(w * other[head] for w, other in zip(weights, value, strict=True)))
        flow += normal(row + np.concatenate(taken) @ given["attention_out"])
    work = np.zeros(len(given["statement_2_bias"]))
    for row in statements:
        if row[0]:
            scaled = (row - given["statement_mean"]) / given["statement_scale"]
            work += layer(layer(scaled, "statement_1"), "statement_2")
    hidden = layer(np.concatenate([normal(work), normal(flow)]), "head_1")
    hidden = hidden + layer(hidden, "head_2")
    np.testing.assert_allclose(model.embed(features)[0], hidden, rtol=1e-4, atol=1e-4)
    score = hidden @ given["output"][:, 0] + given["output_bias"][0]
    assert model.predict(features)[0] == pytest.approx(score, rel=1e-4)


def test_lambda_rank_matches_hand_computed_value():
    """Three programs of one workload, two of another, and padding, which does not count."""
    pytest.importorskip("jax")
    from tvm_droplet_papers.cost_models.descent import lambda_rank

    scores = np.array([[0.3, -0.2, 0.8, 9.0], [0.1, 0.6, 9.0, 9.0], [9.0] * 4])
    expected = np.array([[1.0, 0.4, 0.4, 0.9], [0.2, 1.0, 0.3, 0.9], [0.0] * 4])
    present = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0] * 4], dtype=float)
    gain = {x: 2.0 ** (5 * x) - 1 for x in (1.0, 0.4, 0.2)}
    discount = [1 / np.log2(2 + rank) for rank in range(3)]
    # In the first the ranks are 1, 2, 0; the second and the third are alike.
    pairs = [
        ((gain[1.0] - gain[0.4]) * (discount[1] - discount[2]), 0.3 + 0.2),
        ((gain[1.0] - gain[0.4]) * (discount[0] - discount[1]), 0.3 - 0.8),
    ]
    first = sum(w * np.log1p(np.exp(-margin)) for w, margin in pairs) / sum(w for w, _ in pairs)
    second = np.log1p(np.exp(-(0.6 - 0.1)))
    found = lambda_rank(scores, expected, present)
    assert float(found) == pytest.approx((first + second) / 2, rel=1e-5)


@pytest.mark.parametrize("extractor", [DataFlow, DataFlowStores])
def test_model_file_keeps_network(tmp_path: Path, extractor: type):
    width = (extractor.width - TOKENS * TOKEN_WIDTH) // STATEMENTS
    made = PretrainedModel(pacm(width), TARGET, {"workloads": [], "seed": 0})
    made.save(tmp_path / "some.model")
    again = PretrainedModel.load(tmp_path / "some.model")
    assert again.kind == ("pacm" if extractor is DataFlow else "pacm-stores")
    assert again.extractor().schema == extractor.schema
    features = np.random.default_rng(0).random((4, extractor.width), dtype=np.float32)
    np.testing.assert_array_equal(again.model.predict(features), made.model.predict(features))
    assert again.represent(features).shape == (4, len(pacm().parameters["output"]))


def changed(path: Path, **changes: str) -> None:
    """Change fields of a model file's header."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    header = json.loads(members["header.json"]) | changes
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (members | {"header.json": json.dumps(header).encode()}).items():
            archive.writestr(name, content)


def test_load_rejects_other_schema_and_other_network(tmp_path: Path):
    path = tmp_path / "some.model"
    made = PretrainedModel(pacm(), TARGET, {"workloads": []})
    made.save(path)
    changed(path, schema="pacm 0: others")
    with pytest.raises(ModelFileError, match=r"schema 'pacm 0: others'.*'pacm 1.*train it again"):
        PretrainedModel.load(path)
    changed(path, model="pacm-stores", schema=DataFlowStores.schema)
    with pytest.raises(ModelFileError, match="parameters are of pacm, expected pacm-stores"):
        PretrainedModel.load(path)


def saved(directory: Path, schema: str = DataFlow.schema) -> list[str]:
    """Files of training data of two made-up workloads."""
    for name, seed in (("one", 0), ("two", 1)):
        workload = MeasuredWorkload(name, TARGET, *movements(seed, 40))
        workload.save(directory / f"{name}.npz", schema)
    return [str(directory / f"{name}.npz") for name in ("one", "two")]


def test_command_trains_and_writes_pacm(
    short_training: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "pacm.model"
    command = ["pretrain", *saved(tmp_path), "--model", "pacm", "--out", str(out)]
    assert main(command) == 0
    assert "80 records of 2 workloads" in capsys.readouterr().out
    made = PretrainedModel.load(out)
    assert (made.kind, made.model.objective) == ("pacm", "rank")
    assert main([*command, "--objective", "regression"]) == 0
    assert PretrainedModel.load(out).model.objective == "regression"


def test_command_says_once_that_jax_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], no_jax: None
):
    command = ["pretrain", "missing.npz", "--model", "pacm", "--out", str(tmp_path / "m")]
    assert main(command) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "training a PaCM needs JAX, which is not installed" in line


def test_command_refuses_features_of_another_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("jax")
    files = saved(tmp_path, DataFlowStores.schema)
    assert main(["pretrain", *files, "--model", "pacm", "--out", str(tmp_path / "m")]) == 1
    error = capsys.readouterr().err
    assert "one.npz has features of schema 'pacm 1: " in error
    assert "expected 'pacm 1: " in error

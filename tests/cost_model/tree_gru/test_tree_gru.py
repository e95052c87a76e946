# SPDX-License-Identifier: Apache-2.0
"""TreeGRU on synthetic trees with a known ranking."""

import json
import sys
from functools import lru_cache, partial

import numpy as np
import pytest

from tvm_droplet_ms.cost_model import ModelFileError, PretrainedModel, TransferModel
from tvm_droplet_ms.cost_model.boosted_trees import OBJECTIVES
from tvm_droplet_ms.cost_model.networks.groups import targets
from tvm_droplet_ms.cost_model.throughput import relative_throughput
from tvm_droplet_ms.cost_model.training.ranking import pairwise_accuracy
from tvm_droplet_ms.cost_model.training_data import MeasuredWorkload
from tvm_droplet_ms.cost_model.tree_gru.loop_tree import MAX_NODES, TREE_FEATURES, WIDTH
from tvm_droplet_ms.cost_model.tree_gru.network import HIDDEN, SHAPES, SLOTS
from tvm_droplet_ms.cost_model.tree_gru.tree_batch import TreeBatch
from tvm_droplet_ms.cost_model.tree_gru.tree_gru import TreeGRU

TREES = 480

TARGET = json.dumps({"kind": "llvm"})


def random_tree(generator: np.random.Generator) -> np.ndarray:
    """Random trees of 2 to 12 nodes in preorder, with three random numbers per node."""
    count = int(generator.integers(2, 13))
    rows = np.full((MAX_NODES, 1 + WIDTH), 0.0, dtype=np.float32)
    rows[:, 0] = -1.0
    path = [0]
    for node in range(count):
        path = path[: int(generator.integers(1, len(path) + 1))] if node else []
        rows[node, 0] = path[-1] if path else 0
        path.append(node)
    rows[:count, 1:4] = generator.normal(size=(count, 3))
    return rows


def time_of(rows: np.ndarray) -> float:
    """The time depends on the tree's shape: each node's number is combined with its parent's."""
    parents = rows[:, 0].astype(int)
    nodes = np.flatnonzero(parents >= 0)[1:]
    return float(np.exp(np.tanh(rows[nodes, 1] * (1.0 + rows[parents[nodes], 2])).sum()))


def made_up(seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    trees = [random_tree(generator) for _ in range(TREES)]
    return np.stack(trees).reshape(TREES, -1), np.array([time_of(rows) for rows in trees])


def fitted(objective: str, seed: int = 0) -> TreeGRU:
    pytest.importorskip("jax")
    features, secs = made_up(0)
    workloads = np.repeat([0, 1], TREES // 2)
    throughput = np.concatenate([relative_throughput(part) for part in np.split(secs, 2)])
    return TreeGRU.fit(features, throughput, workloads, objective=objective, seed=seed)


@lru_cache
def known(objective: str) -> TreeGRU:
    return fitted(objective)


def untrained() -> TreeGRU:
    """A network of random parameters."""
    generator = np.random.default_rng(0)
    parameters = {
        name: generator.normal(0.0, 0.2, shape).astype(np.float32) for name, shape in SHAPES.items()
    }
    parameters["mean"] = generator.normal(size=WIDTH).astype(np.float32)
    parameters["scale"] = generator.uniform(0.5, 2.0, WIDTH).astype(np.float32)
    return TreeGRU(parameters, "regression")


# The squared error of the throughput hardly depends on the order of the slowest programs.
@pytest.mark.parametrize("objective, least", [("rank", 0.8), ("regression", 0.65)])
def test_ranks_unseen_programs(objective, least):
    """The accuracy of a random ranking is 0.5."""
    features, secs = made_up(1)
    assert pairwise_accuracy(known(objective).predict(features), secs) > least


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_predicts_relative_throughput(objective):
    """The unit of the objective's raw scores does not matter."""
    features, secs = made_up(0)
    expected = np.concatenate([relative_throughput(part) for part in np.split(secs, 2)])
    predicted = known(objective).predict(features)
    assert predicted.mean() == pytest.approx(expected.mean(), abs=0.05)


def test_same_seed_gives_same_network(monkeypatch):
    pytest.importorskip("jax")
    from tvm_droplet_ms.cost_model.tree_gru import training

    monkeypatch.setattr(training, "EPOCHS", 1)
    monkeypatch.setattr(training, "MIN_STEPS", 10)
    first, again, other = (fitted("rank", seed).parameters for seed in (0, 0, 1))
    for name, value in first.items():
        np.testing.assert_array_equal(value, again[name])
    assert not np.array_equal(first["output"], other["output"])


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_trains_on_single_program(objective, monkeypatch):
    pytest.importorskip("jax")
    from tvm_droplet_ms.cost_model.tree_gru import training

    monkeypatch.setattr(training, "MIN_STEPS", 1)
    features = made_up(0)[0][:2]
    one = np.zeros(1, dtype=int)
    model = TreeGRU.fit(features[:1], np.ones(1), one, objective=objective, seed=0)
    assert np.isfinite(model.predict(features)).all()


def test_prediction_does_not_depend_on_batch():
    features, _ = made_up(2)
    model = untrained()
    alone = np.concatenate([model.predict(row[None]) for row in features])
    np.testing.assert_allclose(model.predict(features), alone, atol=1e-5)
    assert np.ptp(alone) > 0.1
    assert model.predict(features[:0]).shape == (0,)
    assert model.embed(features).shape == (TREES, SLOTS * HIDDEN)


def test_prediction_ignores_sibling_order():
    """The parent-child relation does change the prediction."""
    contexts = np.random.default_rng(0).normal(size=(5, WIDTH))

    def tree(parents, order):
        rows = np.zeros((MAX_NODES, 1 + WIDTH), dtype=np.float32)
        rows[:, 0] = -1
        rows[: len(parents), 0] = parents
        rows[: len(parents), 1:] = contexts[order]
        return rows.ravel()

    # 1 and 2 are in 0, 3 and 4 in 1; then 2 is first and 4 before 3; then 4 is in 2.
    trees = [
        tree([0, 0, 1, 1, 0], [0, 1, 3, 4, 2]),
        tree([0, 0, 0, 2, 2], [0, 2, 1, 4, 3]),
        tree([0, 0, 1, 0, 3], [0, 1, 3, 2, 4]),
    ]
    same, moved, other = untrained().embed(np.stack(trees))
    np.testing.assert_allclose(same, moved, atol=1e-5)
    assert np.abs(same - other).max() > 1e-2


def test_forward_pass_matches_hand_computed_values():
    """A chain of two nodes, one update at a time."""
    features = random_tree(np.random.default_rng(0))
    features[:, 0] = [0, 0, *[-1] * (MAX_NODES - 2)]
    model = untrained()
    given = model.parameters
    hidden, nodes = np.zeros(HIDDEN), []
    for row in (features[1], features[0]):
        context = (row[1:] - given["mean"]) / given["scale"]
        update, reset, candidate = np.split(context @ given["input"] + given["bias"], 3)
        gates = np.split(hidden @ given["gates"], 2)
        update, reset = (
            1 / (1 + np.exp(-value)) for value in (update + gates[0], reset + gates[1])
        )
        candidate = np.tanh(candidate + (reset * hidden) @ given["candidate"])
        hidden = (1 - update) * hidden + update * candidate
        nodes.append(hidden)
    spread = [np.exp(node @ given["scatter"]) for node in nodes]
    kept = sum(np.outer(one / one.sum(), node) for one, node in zip(spread, nodes, strict=True))
    np.testing.assert_allclose(model.embed(features.reshape(1, -1))[0], kept.ravel(), atol=1e-5)


def test_batch_contains_each_node_once():
    features, _ = made_up(3)
    batch = TreeBatch.from_features(features)
    rows = features.reshape(TREES, MAX_NODES, 1 + WIDTH)
    assert len(batch.contexts) == (rows[:, :, 0] >= 0).sum() == batch.levels[-1].nodes.stop
    assert batch.levels[-1].count == batch.count == TREES
    for below, level in zip(batch.levels, batch.levels[1:], strict=False):
        assert len(level.parents) == below.count
        assert (np.diff(level.parents) >= 0).all() and level.parents[-1] < level.count
    np.testing.assert_array_equal(batch.contexts[batch.levels[-1].nodes], rows[:, 0, 1:])


def test_serialization_round_trip():
    features, _ = made_up(2)
    model = untrained()
    again = TreeGRU.from_bytes(model.to_bytes(), "rank", 0.25, 2.0)
    assert again.to_bytes() == model.to_bytes()
    np.testing.assert_array_equal(again.predict(features), 0.25 + 2.0 * model.predict(features))
    with pytest.raises(ValueError, match="shapes"):
        TreeGRU.from_bytes(TreeGRU({"output": np.zeros(3)}, "rank").to_bytes(), "rank", 0.0, 1.0)


def test_rejects_wrong_feature_width():
    with pytest.raises(ValueError, match=f"have 7 features, expected the {TREE_FEATURES} of loop"):
        TreeGRU.fit(np.zeros((3, 7)), np.ones(3), np.zeros(3, dtype=int), objective="rank", seed=0)


def test_missing_jax_names_package_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, "tvm_droplet_ms.cost_model.tree_gru.training", False)
    features, secs = made_up(0)
    with pytest.raises(ImportError, match=r"pip install 'tvm-droplet-ms\[treegru\]'"):
        TreeGRU.fit(features, relative_throughput(secs), np.zeros(TREES), objective="rank", seed=0)


def test_jax_and_numpy_forward_passes_agree():
    """JAX's forward pass on padded trees matches NumPy's on unpadded ones."""
    jax = pytest.importorskip("jax")
    from tvm_droplet_ms.cost_model.tree_gru import training

    features, _ = made_up(2)
    model = untrained()
    steps = [[np.arange(start, start + 120)] for start in range(0, TREES, 120)]
    room = training._room(features, steps)
    forward = jax.jit(partial(training.forward, room=room))
    # Includes trees of a single level and a batch that is not full.
    alone = features[:3].reshape(3, MAX_NODES, -1).copy()
    alone[:, 1:] = 0.0
    alone[:, 1:, 0] = -1.0
    for trees in (features[:120], features[120:180], alone.reshape(3, -1)):
        padded = training._padded(trees, room)
        found = np.asarray(forward(model.parameters, padded))
        np.testing.assert_allclose(found[: len(trees)], model.embed(trees), atol=2e-5)
        assert not found[len(trees) :].any()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_loss_matches_hand_computed_value(objective):
    """Two groups, of 3 and 2 programs; padding does not count."""
    pytest.importorskip("jax")
    from tvm_droplet_ms.cost_model.tree_gru import training

    throughput = np.array([1.0, 0.5, 0.5, 0.25, 1.0])
    expected, places, present = targets(throughput, [np.arange(3), np.arange(3, 5)])
    scores = np.array([0.3, -0.2, 0.8, 0.1, 0.6])
    found = training._LOSSES[objective](scores[places], expected, present)
    if objective == "regression":
        assert found == pytest.approx(((scores - throughput) ** 2).mean(), rel=1e-5)
        return
    # Ordered pairs of different throughput: (0, 1) and (0, 2) in the first group, (4, 3).
    logistic = [np.log1p(np.exp(-margin)) for margin in (0.5, -0.5, 0.5)]
    assert found == pytest.approx((np.mean(logistic[:2]) + logistic[2]) / 2, rel=1e-5)


def test_model_file_keeps_network(tmp_path):
    """The file also tells the network from boosted trees."""
    features, secs = made_up(2)
    pretrained_model = PretrainedModel(untrained(), TARGET, {"workloads": [], "seed": 0})
    pretrained_model.save(tmp_path / "gru.model")
    again = PretrainedModel.load(tmp_path / "gru.model")
    assert (again.kind, again.summary) == ("treegru", pretrained_model.summary)
    assert again.extractor().width == TREE_FEATURES
    np.testing.assert_array_equal(
        again.model.predict(features), pretrained_model.model.predict(features)
    )
    assert TransferModel.from_file(tmp_path / "gru.model") is not None
    with pytest.raises(ValueError, match=f"{TREE_FEATURES} features, expected the 1471"):
        PretrainedModel.learn([MeasuredWorkload("made up", "{}", features, secs)])
    with pytest.raises(ValueError, match="model is 'forest', expected one of trees, treegru, pacm"):
        PretrainedModel.learn([MeasuredWorkload("made up", "{}", features, secs)], model="forest")


def test_load_rejects_parameters_of_other_shape(tmp_path):
    odd = TreeGRU({"output": np.zeros(3)}, "rank")
    PretrainedModel(odd, TARGET, {"workloads": []}).save(tmp_path / "odd.model")
    with pytest.raises(ModelFileError, match=r"odd.model is no cost model: its parameters"):
        PretrainedModel.load(tmp_path / "odd.model")

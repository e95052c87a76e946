# SPDX-License-Identifier: Apache-2.0
"""What is TreeGRU's own: its forward pass, batches of trees, its loss and its model file."""

from functools import partial

import numpy as np
import pytest
from network_cases import TARGET, random_tree, tree_gru, trees

from tvm_droplet_ms.cost_model import PretrainedModel, TransferModel
from tvm_droplet_ms.cost_model.boosted_trees import OBJECTIVES
from tvm_droplet_ms.cost_model.training_data import MeasuredWorkload
from tvm_droplet_papers.cost_models.groups import targets
from tvm_droplet_papers.cost_models.loop_tree import MAX_NODES, TREE_FEATURES, WIDTH
from tvm_droplet_papers.cost_models.tree_batch import TreeBatch
from tvm_droplet_papers.cost_models.tree_gru import HIDDEN

TREES = 240


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
    shapes = [
        tree([0, 0, 1, 1, 0], [0, 1, 3, 4, 2]),
        tree([0, 0, 0, 2, 2], [0, 2, 1, 4, 3]),
        tree([0, 0, 1, 0, 3], [0, 1, 3, 2, 4]),
    ]
    same, moved, other = tree_gru().embed(np.stack(shapes))
    np.testing.assert_allclose(same, moved, atol=1e-5)
    assert np.abs(same - other).max() > 1e-2


def test_forward_pass_matches_hand_computed_values():
    """A chain of two nodes, one update at a time."""
    features = random_tree(np.random.default_rng(0))
    features[:, 0] = [0, 0, *[-1] * (MAX_NODES - 2)]
    model = tree_gru()
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
    features, _ = trees(3)
    batch = TreeBatch.from_features(features)
    rows = features.reshape(TREES, MAX_NODES, 1 + WIDTH)
    assert len(batch.contexts) == (rows[:, :, 0] >= 0).sum() == batch.levels[-1].nodes.stop
    assert batch.levels[-1].count == batch.count == TREES
    for below, level in zip(batch.levels, batch.levels[1:], strict=False):
        assert len(level.parents) == below.count
        assert (np.diff(level.parents) >= 0).all() and level.parents[-1] < level.count
    np.testing.assert_array_equal(batch.contexts[batch.levels[-1].nodes], rows[:, 0, 1:])


def test_jax_and_numpy_forward_passes_agree():
    """JAX's forward pass on padded trees matches NumPy's on unpadded ones."""
    jax = pytest.importorskip("jax")
    from tvm_droplet_papers.cost_models import training

    features, _ = trees(2)
    model = tree_gru()
    steps = [[np.arange(start, start + 120)] for start in range(0, TREES, 120)]
    room = training.tree_room(features, steps)
    forward = jax.jit(partial(training.tree_memory, room=room))
    # Includes trees of a single level and a batch that is not full.
    alone = features[:3].reshape(3, MAX_NODES, -1).copy()
    alone[:, 1:] = 0.0
    alone[:, 1:, 0] = -1.0
    for programs in (features[:120], features[120:180], alone.reshape(3, -1)):
        padded = training.padded_trees(programs, room)
        found = np.asarray(forward(model.parameters, padded))
        np.testing.assert_allclose(found[: len(programs)], model.embed(programs), atol=2e-5)
        assert not found[len(programs) :].any()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_loss_matches_hand_computed_value(objective):
    """Two groups, of 3 and 2 programs; padding does not count."""
    pytest.importorskip("jax")
    from tvm_droplet_papers.cost_models import training

    throughput = np.array([1.0, 0.5, 0.5, 0.25, 1.0])
    expected, places, present = targets(throughput, [np.arange(3), np.arange(3, 5)])
    scores = np.array([0.3, -0.2, 0.8, 0.1, 0.6])
    losses = {"rank": training.RECIPES["TreeGRU"].rank, "regression": training.squared_error}
    found = losses[objective](scores[places], expected, present)
    if objective == "regression":
        assert found == pytest.approx(((scores - throughput) ** 2).mean(), rel=1e-5)
        return
    # Ordered pairs of different throughput: (0, 1) and (0, 2) in the first group, (4, 3).
    logistic = [np.log1p(np.exp(-margin)) for margin in (0.5, -0.5, 0.5)]
    assert found == pytest.approx((np.mean(logistic[:2]) + logistic[2]) / 2, rel=1e-5)


def test_model_file_keeps_network(tmp_path):
    """The file also tells the network from boosted trees."""
    features, secs = trees(2)
    pretrained_model = PretrainedModel(tree_gru(), TARGET, {"workloads": [], "seed": 0})
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

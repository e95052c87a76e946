# SPDX-License-Identifier: Apache-2.0

"""Momentum adaptation: the update by hand, and TransferModel with each adaptation."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tasks import Task, inverted

from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm_droplet_ms.cost_model import PretrainedModel, TransferModel
from tvm_droplet_ms.cost_model.kinds import ADAPTATIONS, MeasuredTask
from tvm_droplet_papers.cost_models import DataFlow, LoopTrees
from tvm_droplet_papers.cost_models.momentum import MOMENTUM, AdaptedNetwork, moved_towards
from tvm_droplet_papers.cost_models.pattern_aware import PatternAware


@pytest.fixture(scope="module")
def task() -> Task:
    return Task(64, 32, 16, count=80)


@pytest.fixture(scope="module")
def network() -> PretrainedModel:
    """A network that learned inverted times of another matrix product."""
    pytest.importorskip("jax")
    from tvm_droplet_papers.cost_models import training

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "EPOCHS", 1)
        patch.setattr(training, "MIN_STEPS", 40)
        wrong = inverted(Task(32, 32, 32, count=80).workload(DataFlow()))
        return PretrainedModel.learn([wrong], model="pacm", objective="rank")


def test_source_moves_by_momentum_by_hand():
    source = {"weight": np.array([1.0, -2.0], np.float32), "bias": np.array([0.5], np.float32)}
    target = {"weight": np.array([3.0, 2.0], np.float32), "bias": np.array([0.5], np.float32)}
    moved = moved_towards(source, target, 0.99)
    np.testing.assert_allclose(moved["weight"], [1.02, -1.96], rtol=1e-6)
    assert moved["bias"].tolist() == [0.5] and moved["bias"].dtype == np.float32
    assert moved_towards(source, target, 1.0)["weight"].tolist() == [1.0, -2.0]
    assert moved_towards(source, target, 0.0)["weight"].tolist() == [3.0, 2.0]
    assert source["weight"].tolist() == [1.0, -2.0]


@pytest.mark.parametrize("momentum, expected", [(MOMENTUM, [0.01, 0.02, 0.03]), (1.0, [0, 0, 0])])
def test_each_training_begins_as_the_source(momentum: float, expected: list[float]):
    """A training adds 1 to the weight: the target is 1 above the source, which takes 0.01 of it."""
    pytest.importorskip("jax")
    begun = []

    def add_one(parameters, *data, **options):
        begun.append(float(parameters["weight"][0]))
        return {name: value + 1.0 for name, value in parameters.items()}

    adapted = AdaptedNetwork(
        PatternAware({"weight": np.zeros(1)}, "rank"), momentum=momentum, seed=0
    )
    adapted._fine_tune = add_one
    sources, targets = [], []
    for _ in range(3):
        adapted.learn([MeasuredTask([np.zeros(2)], [1.0])])
        sources.append(float(adapted.source.parameters["weight"][0]))
        targets.append(float(adapted.target.parameters["weight"][0]))
    assert sources == pytest.approx(expected)
    assert begun == pytest.approx([0.0, *expected[:2]])
    assert targets == pytest.approx([one + 1.0 for one in begun])


@pytest.mark.parametrize("adaptation", ADAPTATIONS)
def test_adaptation_corrects_wrong_network(adaptation, network: PretrainedModel, task: Task):
    """Half of the task is measured in four rounds, and half is ranked. Chance is 0.5."""
    model = TransferModel(network, adaptation=adaptation)
    before = task.accuracy(model, 40)
    assert before < 0.45
    for start in range(0, 40, 10):
        task.update(model, start, start + 10)
        task.predict(model, 0, 1)
    assert task.accuracy(model, 40) > before + 0.1


def test_saved_source_is_where_momentum_left_it(
    network: PretrainedModel, task: Task, tmp_path: Path
):
    """After one training it has moved by one part in a hundred; fine-tuning leaves it."""
    for adaptation, share in (("momentum", 0.01), ("fine-tune", 0.0)):
        model = TransferModel(network, adaptation=adaptation)
        task.update(model, 0, 20)
        task.predict(model, 0, 1)
        model.save(str(tmp_path / "source.model"))
        saved = PretrainedModel.load(tmp_path / "source.model")
        assert (saved.kind, saved.target) == ("pacm", network.target)
        target = model._adaptation.target.parameters
        for name, value in network.model.parameters.items():
            expected = value + share * (target[name] - value)
            np.testing.assert_allclose(saved.model.parameters[name], expected, atol=1e-6)
        # The next run begins there.
        begun = TransferModel.from_file(tmp_path / "source.model", adaptation=adaptation)
        assert np.isfinite(task.predict(begun, 0, 3)).all()


def test_inputs_are_normalized_as_the_source_is(network: PretrainedModel, task: Task):
    model = TransferModel(network, adaptation="fine-tune")
    task.update(model, 0, 9)
    task.predict(model, 0, 1)
    target = model._adaptation.target.parameters
    for name in ("token_mean", "token_scale", "statement_mean", "statement_scale"):
        np.testing.assert_array_equal(target[name], network.model.parameters[name])
    assert not np.array_equal(target["output"], network.model.parameters["output"])


def test_same_seed_adapts_alike(network: PretrainedModel, task: Task):
    found = []
    for seed in (0, 0, 1):
        model = TransferModel(network, adaptation="momentum", seed=seed)
        task.update(model, 0, 20)
        found.append(task.predict(model))
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])


def test_failures_alone_teach_nothing_and_harm_nothing(network: PretrainedModel, task: Task):
    model = TransferModel(network, adaptation="momentum")
    failed = [RunnerResult(None, "an error")] * 5
    model.update(task.context, task.candidates[:5], failed)
    assert np.isfinite(task.predict(model)).all()


@pytest.mark.parametrize("adaptation", ["fine-tune", "momentum"])
def test_trees_have_residual_only(adaptation, task: Task, tmp_path: Path):
    trees = PretrainedModel.learn([task.workload()], rounds=2)
    expected = f"adaptation is '{adaptation}', and the pretrained model is of kind trees.*residual"
    with pytest.raises(ValueError, match=expected):
        TransferModel(trees, adaptation=adaptation)
    trees.save(tmp_path / "trees.model")
    with pytest.raises(ValueError, match="of kind trees.*--model pacm"):
        TransferModel.from_file(tmp_path / "trees.model", adaptation=adaptation)
    with pytest.raises(ValueError, match="the pretrained model is not there"):
        TransferModel(adaptation=adaptation)


def test_refused_load_changes_nothing(network: PretrainedModel, task: Task, tmp_path: Path):
    model = TransferModel(network, adaptation="momentum")
    expected = task.predict(model)
    PretrainedModel.learn([task.workload()], rounds=2).save(tmp_path / "t.model")
    with pytest.raises(ValueError, match="of kind trees"):
        model.load(str(tmp_path / "t.model"))
    np.testing.assert_array_equal(task.predict(model), expected)


def test_tree_gru_has_residual_only(network: PretrainedModel):
    from tvm_droplet_papers.cost_models.tree_gru import TreeGRU

    gru = replace(network, model=TreeGRU({}, "rank"))
    assert isinstance(gru.extractor(), LoopTrees)
    with pytest.raises(ValueError, match="of kind treegru"):
        TransferModel(gru, adaptation="momentum")


def test_unknown_options_are_named():
    with pytest.raises(ValueError, match="adaptation is 'ema', expected one of residual, fine-tun"):
        TransferModel(adaptation="ema")
    with pytest.raises(ValueError, match="objective is 'squares', expected one of rank, regressi"):
        TransferModel(objective="squares")


def test_missing_jax_is_said_before_anything_is_measured(network: PretrainedModel, no_jax: None):
    with pytest.raises(ImportError, match=r"pip install './papers\[pacm\]'"):
        TransferModel(network, adaptation="momentum")
    assert TransferModel(network) is not None

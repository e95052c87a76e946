# SPDX-License-Identifier: Apache-2.0
"""TransferModel as TVM calls it: pretrained knowledge, online updates, and saving."""

import json
import math
import warnings
import zipfile
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from conformance.driving import drive
from conformance.objectives import bowl, fail, timed
from conformance.strategies import make_evolution
from conformance.workloads import LLVM, OTHER_LLVM, make_context, matmul
from tasks import Task, inverted

from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.target import Target
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.cost_model import ModelFileError, PretrainedModel, TransferModel
from tvm_droplet_ms.cost_model.training_data import MeasuredWorkload, target_text
from tvm_droplet_papers.cost_models import LoopTrees

TARGET = target_text(LLVM)


@lru_cache(maxsize=1)
def known() -> tuple[MeasuredWorkload, ...]:
    return Task(32, 32, 32).workload(), Task(16, 64, 32).workload()


@lru_cache(maxsize=1)
def unknown() -> Task:
    return Task(64, 32, 16)


@pytest.mark.parametrize("objective", ["rank", "regression"])
def test_ranks_unseen_workload(objective):
    """Accuracy is at least 0.25 above chance, which is 0.5."""
    model = TransferModel(PretrainedModel.learn(known(), objective=objective))
    assert unknown().accuracy(model) > 0.75


def test_tree_gru_as_pretrained_model(tmp_path, monkeypatch):
    """Ranks an unseen workload, survives saving and loading, and improves with measurements."""
    pytest.importorskip("jax")
    from tvm_droplet_papers.cost_models import training

    monkeypatch.setattr(training, "EPOCHS", 1)
    monkeypatch.setattr(training, "MIN_STEPS", 100)
    tasks = [Task(32, 32, 32), Task(16, 64, 32)]
    workloads = [task.workload(extractor=LoopTrees()) for task in tasks]
    model = TransferModel(PretrainedModel.learn(workloads, model="treegru", objective="rank"))
    model.save(str(tmp_path / "gru.model"))
    model, task = TransferModel.from_file(tmp_path / "gru.model"), unknown()
    before = task.accuracy(model)
    assert before > 0.75
    half = len(task.candidates) // 2
    task.update(model, 0, half)
    assert task.accuracy(model, half) > 0.8


def test_untrained_model_predicts_at_random():
    model, task = TransferModel(seed=3), unknown()
    first = task.predict(model)
    assert not np.array_equal(first, task.predict(model))
    again = TransferModel(seed=3).predict(task.context, task.candidates)
    np.testing.assert_array_equal(first, again)


def test_update_improves_ranking_of_next_task():
    first, model = Task(32, 32, 32), TransferModel()
    model.update(first.context, first.candidates, first.results)
    assert unknown().accuracy(model) > 0.7


def test_local_model_corrects_global_model():
    """The global model learned inverted times; half of the task is measured, half ranked."""
    wrong = [inverted(workload) for workload in known()]
    model, task = TransferModel(PretrainedModel.learn(wrong)), unknown()
    assert task.accuracy(model) < 0.4
    half = len(task.candidates) // 2
    task.update(model, 0, half)
    assert task.accuracy(model, half) > 0.7


def test_wrong_pretrained_model_costs_at_most_a_quarter():
    """The mean of five seeds: rounding, which differs from CPU to CPU, decides where one ends."""
    wrong = PretrainedModel.learn([inverted(workload) for workload in known()])
    costs = []
    for seed in range(5):
        found = []
        for prior in (TransferModel(wrong), None):
            context = make_context(DropletStrategy(prior=prior), matmul(64, 32, 16), seed=seed)
            driven = drive(context, timed(bowl), max_trials=64)
            found.append(min(bowl(trial.decisions) for trial in driven.trials))
        costs.append(found[0] / found[1])
    assert np.mean(costs) <= 1.25


@pytest.mark.parametrize("strategy", ["evolutionary", "droplet"])
def test_works_with_any_search_strategy(strategy):
    """With few trials, it finds better schedules than with an untrained model."""
    best = []
    for model in (TransferModel(PretrainedModel.learn(known())), ms.cost_model.RandomModel(seed=0)):
        of_seeds = []
        for seed in range(1, 4):
            made = DropletStrategy(prior=model) if strategy == "droplet" else make_evolution()
            context = make_context(made, matmul(64, 32, 16), seed=seed)
            driven = drive(context, timed(bowl), max_trials=12, cost_model=model)
            of_seeds.append(min(bowl(trial.decisions) for trial in driven.trials))
        best.append(np.mean(of_seeds))
    assert best[0] < best[1]


def test_update_accepts_failed_single_and_nan_times():
    """No outcome of a measurement raises an error; failed candidates rank last."""
    model, task = TransferModel(PretrainedModel.learn(known())), unknown()
    before = task.accuracy(model)
    count = len(task.candidates)
    bad = [None, [math.nan], [math.inf], [0.0], [1e-3, math.nan]]
    results = [RunnerResult(bad[i % len(bad)], "an error") for i in range(count)]
    model.update(task.context, [], [])
    model.update(task.context, task.candidates, results)
    predicted = task.predict(model)
    assert np.isfinite(predicted).all() and (predicted >= 0.0).all()
    assert predicted.mean() < 0.1
    single = TransferModel(PretrainedModel.learn(known()))
    task.update(single, 0, 1)
    assert task.accuracy(single) == pytest.approx(before, abs=0.1)
    prior = TransferModel(PretrainedModel.learn(known()))
    context = make_context(DropletStrategy(prior=prior), matmul(64, 32, 16))
    driven = drive(context, fail, max_trials=12)
    assert len(driven.trials) == 12


def test_update_skips_unmeasured_candidates():
    model, task = TransferModel(PretrainedModel.learn(known())), unknown()
    before = task.predict(model)
    unmeasured = [RunnerResult([], "machinery failure: disk full")] * len(task.candidates)
    model.update(task.context, task.candidates, unmeasured)
    np.testing.assert_array_equal(task.predict(model), before)


def test_loaded_model_predicts_as_saved(tmp_path):
    for objective in ("rank", "regression"):
        path = tmp_path / f"{objective}.model"
        pretrained_model = PretrainedModel.learn(known(), objective=objective)
        model = TransferModel(pretrained_model)
        model.save(str(path))
        loaded, task = TransferModel.from_file(str(path)), unknown()
        np.testing.assert_array_equal(
            task.predict(loaded),
            task.predict(model),
        )
        again = PretrainedModel.load(path)
        assert (again.target, again.summary) == (pretrained_model.target, pretrained_model.summary)
        header = json.loads(zipfile.ZipFile(path).read("header.json"))
        assert header["tvm"].startswith("0.") and header["objective"] == objective
        assert [workload["records"] for workload in header["summary"]["workloads"]] == [
            len(workload.secs) for workload in known()
        ]


def test_save_rejects_untrained_model(tmp_path):
    with pytest.raises(ValueError, match="not trained on other workloads"):
        TransferModel().save(str(tmp_path / "empty.model"))


def load_by_method(model, path):
    model.load(path)


def load_by_tvm(model, path):
    ms.cost_model.cost_model._ffi_api.CostModelLoad(model, path)


@pytest.mark.parametrize("load", [load_by_method, load_by_tvm])
def test_load_replaces_state_of_instance(tmp_path, load):
    """TVM's contract for cost models: earlier measurements are dropped."""
    path = str(tmp_path / "made.model")
    made, task = TransferModel(PretrainedModel.learn(known())), unknown()
    expected = task.predict(made)
    ms.cost_model.cost_model._ffi_api.CostModelSave(made, path)
    model = TransferModel()
    model.update(task.context, task.candidates, task.results[::-1])
    load(model, path)
    np.testing.assert_array_equal(task.predict(model), expected)


@pytest.mark.parametrize("load", [load_by_method, load_by_tvm])
def test_failed_load_changes_nothing(tmp_path, load):
    model, task = TransferModel(PretrainedModel.learn(known())), unknown()
    expected = task.predict(model)
    with pytest.raises(ModelFileError, match=r"missing\.model is no cost model"):
        load(model, str(tmp_path / "missing.model"))
    np.testing.assert_array_equal(task.predict(model), expected)


def context_of(target: dict) -> ms.TuneContext:
    return ms.TuneContext(unknown().context.mod, target=Target({"kind": "llvm"} | target))


AVX2 = {"mcpu": "haswell", "num-cores": 4}


@pytest.mark.parametrize(
    "learned, tuned",
    [
        (LLVM, {"mcpu": "skylake-avx512", "num-cores": 64}),
        (LLVM, {"mcpu": "znver4", "num-cores": 4}),
        (AVX2, {"mcpu": "znver3"}),
        (AVX2, {"mcpu": "znver4", "mattr": ["-avx512f"]}),
    ],
)
def test_same_instruction_set_does_not_warn(learned, tuned):
    """The number of cores and the CPU model do not change the instruction set."""
    model = trained_on(learned)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(context_of(tuned), unknown().candidates[:2])


@pytest.mark.parametrize(
    "learned, tuned, expected",
    [
        (LLVM, AVX2, r"trained on programs for llvm avx512f, and tuning is for llvm avx2"),
        (AVX2, {"mcpu": "znver4"}, r"for llvm avx2, and tuning is for llvm avx512f.*znver4"),
        (
            LLVM,
            {"mtriple": "aarch64-linux-gnu", "mcpu": "neoverse-n1"},
            r"for llvm avx512f, and tuning is for llvm neon.*may not hold.*droplet-ms pretrain",
        ),
    ],
)
def test_other_instruction_set_warns_once(nothing_warned, learned, tuned, expected):
    with pytest.warns(UserWarning, match=expected) as given:
        # A run of a whole model makes several models of one file.
        for model in (trained_on(learned), trained_on(learned)):
            model.predict(context_of(tuned), unknown().candidates[:2])
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                model.predict(context_of(tuned), unknown().candidates[:2])
    assert len(given) == 1


def test_each_target_of_another_instruction_set_warns(nothing_warned):
    model = trained_on(LLVM)
    for target, name in ((AVX2, "avx2"), ({"mcpu": "sandybridge"}, "avx ")):
        with pytest.warns(UserWarning, match=f"tuning is for llvm {name}"):
            model.predict(context_of(target), unknown().candidates[:2])


@pytest.fixture
def nothing_warned(monkeypatch):
    """As in a process that has not warned yet."""
    monkeypatch.setattr("tvm_droplet_ms.cost_model.instruction_set._warnings_given", set())


def trained_on(target) -> TransferModel:
    made = target if isinstance(target, Target) else Target({"kind": "llvm"} | target)
    workloads = [replace(workload, target=target_text(made)) for workload in known()]
    return TransferModel(PretrainedModel.learn(workloads, rounds=5))


@pytest.mark.parametrize("target", [LLVM, Target({"kind": "llvm"} | AVX2)])
def test_shipped_model_distinguishes_schedules(target):
    """It does not warn: those that ship were trained on AVX-512 and on AVX2."""
    task = unknown()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = TransferModel.pretrained(target)
        predicted = model.predict(context_of(dict(target.export())), task.candidates)
    assert len(set(predicted)) > len(predicted) / 2
    assert np.isfinite(predicted).all()


def test_shipped_model_rejects_gpu_target():
    with pytest.raises(ValueError, match="its kind, expected llvm"):
        TransferModel.pretrained(Target({"kind": "opencl"}))


def test_a_measurement_that_is_told_twice_counts_once():
    """As prior and as TVM's cost model, it hears of each batch from the search and from TVM."""
    once, twice, task = TransferModel(seed=1), TransferModel(seed=1), unknown()
    half = len(task.candidates) // 2
    for model in (once, twice, twice):
        task.update(model, 0, half)
    # The share of failures would be learned twice as well.
    failed = [RunnerResult(None, "made-up error")] * 4
    for model in (once, twice, twice):
        model.update(task.context, task.candidates[half : half + 4], failed)
    rest = task.candidates[half + 4 :]
    np.testing.assert_array_equal(
        once.predict(task.context, rest), twice.predict(task.context, rest)
    )
    sizes = [len(told.secs) for model in (once, twice) for told in model._tasks.values()]
    assert sizes == [half + 4, half + 4]


def test_times_of_two_targets_are_not_compared():
    """A machine that is a thousand times slower says the same of a workload."""
    task = unknown()
    other = make_context(ms.search_strategy.ReplayTrace(), task.context.mod, target=OTHER_LLVM)
    half, predicted = len(task.candidates) // 2, []
    for times in (1.0, 1024.0):
        model = TransferModel(seed=1)
        task.update(model, 0, half)
        slower = [RunnerResult([times * secs], None) for secs in task.secs[half:]]
        model.update(other, task.candidates[half:], slower)
        predicted.append(task.predict(model))
        # It learns from the slower times too.
        rest = model.predict(other, task.candidates[half:])
        untrained = TransferModel(seed=1).predict(other, task.candidates[half:])
        assert not np.array_equal(rest, untrained)
        assert np.corrcoef(rest, -np.log(task.secs[half:]))[0, 1] > 0.5
    np.testing.assert_array_equal(*predicted)

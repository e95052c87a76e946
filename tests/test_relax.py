# SPDX-License-Identifier: Apache-2.0
"""The Relax pass and pipeline: tuning, application of records, and rejected arguments."""

import os
import random
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

import filelock
import numpy as np
import pytest
import tvm_ffi
from conformance.driving import OneMillisecond
from tuning.small_network import SmallNet

import tvm
from tvm import relax
from tvm.ir.utils import derived_object
from tvm.relax.frontend import nn
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target
from tvm_droplet_ms import DropletTuneIRMod, open_database, tune
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import PrefetchWeights, WarmBuilder
from tvm_droplet_ms.model.prepare import prepare_graph
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer, TaskHistory
from tvm_droplet_ms.search_strategy.explorers.evolutionary import EvolutionaryExplorer
from tvm_droplet_ms.search_strategy.explorers.random_sampling import (
    RandomExploration,
    RandomExplorer,
)
from tvm_droplet_ms.tuning.compile.lowering import lower

SMALL_SEARCH = {"explore_trials": 2}


@pytest.fixture(scope="module")
def model():
    return SmallNet().export_tvm({"forward": {"image": nn.spec.Tensor((1, 3, 12, 12), "float32")}})


@pytest.fixture(scope="module")
def arguments(model):
    rng = np.random.default_rng(0)
    shapes = [(1, 3, 12, 12)] + [tuple(map(int, weight.shape)) for _, weight in model[1]]
    return [tvm.runtime.tensor(rng.standard_normal(s).astype("float32")) for s in shapes]


@derived_object
class NoBuilder(ms.builder.PyBuilder):
    """A builder that builds nothing. TVM removes an artifact's folder, so each has its own."""

    def build(self, build_inputs):
        return [ms.builder.BuilderResult(f"{mkdtemp()}/nothing", None) for _ in build_inputs]


@pytest.fixture
def unmeasured():
    """Tuning options without real measurements."""
    return {"builder": NoBuilder(), "runner": OneMillisecond(), "num_trials_per_iter": 2, "seed": 0}


def measured():
    """Tuning options for quick, rough measurements on the host's CPU."""
    evaluator = ms.runner.EvaluatorConfig(number=1, repeat=1, min_repeat_ms=0)
    return {
        "builder": WarmBuilder(max_workers=2),
        "runner": ms.runner.LocalRunner(evaluator_config=evaluator),
        "num_trials_per_iter": 2,
        "seed": 0,
    }


def fuse(mod, target):
    with target:
        return relax.get_pipeline("zero")(mod)


def kernels(mod):
    return {v.name_hint for v, f in mod.functions.items() if isinstance(f, tvm.tirx.PrimFunc)}


def scheduled(mod):
    return {name for name in kernels(mod) if mod[name].attrs.get("tirx.is_scheduled", False)}


def run_forward(mod, target, arguments):
    machine = relax.VirtualMachine(tvm.compile(mod, target), tvm.cpu())
    return machine["forward"](*arguments).numpy()


def assert_close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def pipeline(**options):
    return relax.get_pipeline("droplet_tuning", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"total_trials": -1}, r"total_trials=-1 .* at least 0"),
        ({"max_trials_per_task": 0}, r"max_trials_per_task=0 .* at least 1"),
        ({"num_trials_per_iter": 0}, r"num_trials_per_iter=0 .* at least 1"),
        ({"explore_trials": -5}, "explore_trials"),
        ({"explore_trails": 4}, "explore_trails"),
    ],
)
def test_pipeline_rejects_what_it_does_not_know_or_is_out_of_range(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        pipeline(**{"total_trials": 8, "target": "llvm"} | options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "none"),
        ({"explorer": "known"}, "none"),
        ({"explorer": RandomExplorer()}, "none"),
        ({"explorer": "evolutionary"}, "xgb"),
        ({"explorer": EvolutionaryExplorer()}, "xgb"),
        ({"cost_model": "random"}, "random"),
    ],
)
def test_pipeline_trains_cost_model_only_if_search_uses_it(
    options, expected, model, tmp_path, monkeypatch
):
    trained = []
    monkeypatch.setattr(
        ms.relax_integration, "tune_relax", lambda *_, cost_model, **__: trained.append(cost_model)
    )
    pipeline(total_trials=2, target=host_target(), work_dir=str(tmp_path), **options)(model[0])
    assert trained == [expected]


def test_pass_refuses_no_target_and_negative_trials(tmp_path):
    with pytest.raises(ValueError, match="with target:"):
        DropletTuneIRMod({}, str(tmp_path), 8)
    with Target("llvm"), pytest.raises(ValueError, match=r"max_trials_global=-1 .* at least 0"):
        DropletTuneIRMod({}, str(tmp_path), -1)


def test_pass_tunes_named_operators_and_returns_module(model, tmp_path, unmeasured):
    target = host_target()
    mod = fuse(model[0], target)
    with target:
        tune = DropletTuneIRMod(
            {}, str(tmp_path), 6, op_names=["conv2d"], strategy_options=SMALL_SEARCH, **unmeasured
        )
    tuned = tune(mod)
    assert tvm_ffi.structural_equal(tuned, mod)
    records = open_database(str(tmp_path)).get_all_tuning_records()
    assert len(records) == 6
    (convolution,) = (f for v, f in mod.functions.items() if "conv2d" in v.name_hint)
    for record in records:
        (workload,) = record.workload.mod.functions.values()
        assert tvm_ffi.structural_equal(workload.body, convolution.body, map_free_vars=True)


UNPREDICTED = {**SMALL_SEARCH, "prior": None, "draft": None}
"""Without predictions, which take most of the time."""


def make_pass(work_dir, **options):
    with host_target():
        tune = DropletTuneIRMod(
            {}, work_dir, 2, op_names=["conv2d"], strategy_options=UNPREDICTED, **options
        )
    return lambda mod: tune(fuse(mod, host_target()))


def make_pipeline(work_dir, **options):
    return pipeline(
        total_trials=2,
        target=host_target(),
        work_dir=work_dir,
        op_names=["conv2d"],
        **UNPREDICTED,
        **options,
    )


@pytest.mark.parametrize("make", [make_pass, make_pipeline])
def test_a_directory_has_one_writer_who_mends_it(make, model, tmp_path, unmeasured, caplog):
    """Records name workloads by their line: two writers would mix them up."""
    with filelock.FileLock(tmp_path / ".lock"):
        with pytest.raises(RuntimeError, match="another process tunes in"):
            make(str(tmp_path), **unmeasured)(model[0])
    assert not list(tmp_path.glob("database_*.json"))
    (tmp_path / "database_tuning_record.json").write_text("[0, [to")
    make(str(tmp_path), **unmeasured)(model[0])
    assert "the torn last line of database_tuning_record.json was cut off" in caplog.text
    assert len(open_database(tmp_path).get_all_tuning_records()) == 2


@pytest.mark.parametrize("make", [make_pass, make_pipeline])
def test_records_that_do_not_reach_their_file_are_told(
    make, model, tmp_path, unmeasured, monkeypatch
):
    """TVM says nothing where it could not write."""

    def lose(*_, measure_callbacks, **__):
        results = [ms.runner.RunnerResult([1.0], None)] * 2
        measure_callbacks[-1]._inst.apply(None, 0, [None] * 2, [None] * 2, results)

    monkeypatch.setattr(ms.relax_integration, "tune_relax", lose)
    with pytest.raises(ValueError, match="2 of 2 records could not be written to"):
        make(str(tmp_path), **unmeasured)(model[0])


def test_what_is_applied_only_may_be_written_by_another(model, tmp_path):
    with filelock.FileLock(tmp_path / ".lock"):
        pipeline(total_trials=0, target=host_target(), work_dir=str(tmp_path))(model[0])


DEFAULTS = """
import sys
from test_relax import SmallNet, fuse, nn
from tvm.s_tir import Schedule, TensorIntrin
from tvm.s_tir import meta_schedule as ms
from tvm.tirx.script.parser import entry
from tvm_droplet_ms import DropletTuneIRMod
from tvm_droplet_ms.host import host_target

places = [(ms.TuneContext, "__init__"), (ms.database.JSONDatabase, "__init__"),
          (Schedule, "tensorize"), (TensorIntrin, "get"), (entry, "inspect")]
before = [vars(owner)[name] for owner, name in places]
model, _ = SmallNet().export_tvm({"forward": {"image": nn.spec.Tensor((1, 3, 12, 12), "float32")}})
target = host_target()
with target:
    tune = DropletTuneIRMod({}, sys.argv[1], 2, op_names=["conv2d"], seed=0)
tune(fuse(model, target))
assert all(vars(owner)[name] is old for (owner, name), old in zip(places, before))
# Neither were the intrinsics of all backends imported, which takes 14 s.
assert "tvm.s_tir.tensor_intrin" not in sys.modules
"""


def test_default_pass_restores_tvm(tmp_path):
    search = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", DEFAULTS, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": search},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(open_database(tmp_path).get_all_tuning_records()) == 2


def test_pass_uses_given_database(model, tmp_path, unmeasured):
    target = host_target()
    database = ms.database.MemoryDatabase()
    with target:
        tune = DropletTuneIRMod(
            {},
            str(tmp_path),
            2,
            op_names=["conv2d"],
            database=database,
            strategy_options=SMALL_SEARCH,
            **unmeasured,
        )
    tune(fuse(model[0], target))
    assert len(database.get_all_tuning_records()) == 2
    assert not list(tmp_path.glob("database_*.json"))


def test_pass_without_tunable_task_raises(model, tmp_path, unmeasured):
    target = host_target()
    with target:
        tune = DropletTuneIRMod({}, str(tmp_path), 2, op_names=["no_such_operator"], **unmeasured)
    with pytest.raises(ValueError, match="No tasks to tune"):
        tune(fuse(model[0], target))


def test_pipeline_applies_only_records_of_its_target(model, tmp_path, unmeasured):
    target = host_target()
    other = Target({"kind": "llvm", "num-cores": 64})
    common = {"work_dir": str(tmp_path), **SMALL_SEARCH}
    tuned = pipeline(total_trials=6, target=target, **common, **unmeasured)(model[0])
    assert scheduled(tuned)
    assert scheduled(pipeline(total_trials=0, target=target, **common)(model[0])) == scheduled(
        tuned
    )
    assert not scheduled(pipeline(total_trials=0, target=other, **common)(model[0]))


@pytest.mark.parametrize("packs_weights", [False, True])
def test_pipeline_tunes_for_the_host(model, arguments, tmp_path, packs_weights):
    target = host_target()
    tuned = pipeline(
        total_trials=12,
        max_trials_per_task=4,
        target=target,
        work_dir=str(tmp_path),
        cpu_weight_prepack=packs_weights,
        **SMALL_SEARCH,
        **measured(),
    )(model[0])
    records = open_database(str(tmp_path)).get_all_tuning_records()
    assert 12 <= len(records) <= 13  # TVM's scheduler does not trim the last batch of 2.
    assert all(tvm_ffi.structural_equal(record.target, target) for record in records)
    assert packs_weights or scheduled(tuned) == kernels(fuse(model[0], target))
    machine = relax.VirtualMachine(tvm.compile(tuned, target), tvm.cpu())
    image, *weights = arguments
    if packs_weights:
        weights = machine["forward_transform_params"](weights)
    assert_close(
        machine["forward"](image, *weights).numpy(), run_forward(model[0], target, arguments)
    )


@pytest.mark.parametrize("option", [{}, {"cpu_weight_prepack": True}])
def test_one_database_serves_the_pipeline_and_tune(option, model, arguments, tmp_path, unmeasured):
    target = host_target()
    bound = with_constants(model, arguments)
    common = {"work_dir": str(tmp_path), **option, **SMALL_SEARCH}
    pipeline(total_trials=8, target=target, **common, **unmeasured)(bound)
    lowered = lower(prepare_graph()(bound), target)
    with target, open_database(tmp_path):
        applied = relax.transform.MetaScheduleApplyDatabase()(lowered)
    assert scheduled(applied) == kernels(lowered)
    again = pipeline(total_trials=0, target=target, **common)(bound)
    assert_close(
        run_forward(again, target, arguments[:1]), run_forward(model[0], target, arguments)
    )


def with_constants(model, arguments):
    weights = {name: array for (name, _), array in zip(model[1], arguments[1:], strict=True)}
    return relax.transform.BindParams("forward", weights)(model[0])


def test_tune_finds_what_the_pipeline_measured_and_the_other_way_round(
    model, arguments, tmp_path, unmeasured
):
    target = Target({**host_target().export(), "num-cores": 1})
    bound = with_constants(model, arguments)
    bound["main"] = bound["forward"].with_attr("global_symbol", "main")
    del bound["forward"]
    first, second = str(tmp_path / "pipeline"), str(tmp_path / "tune")
    pipeline(total_trials=8, target=target, work_dir=first, **SMALL_SEARCH, **unmeasured)(bound)
    records = len(open_database(first).get_all_tuning_records())
    options = {"target": target, "time_budget_s": 120, "progress": None}
    found = tune(bound, work_dir=first, trials=0, **options)
    assert found.trials == 0
    assert sum(row.trials for row in found.kernels) == records
    assert all(row.trials > 0 for row in found.kernels)
    tune(bound, work_dir=second, trials=4, **options)
    for directory, is_tuned in ((second, True), (str(tmp_path / "empty"), False)):
        applied = pipeline(total_trials=0, target=target, work_dir=directory)(bound)
        assert bool(scheduled(applied)) == is_tuned


def test_a_limit_hands_on_a_nan(tmp_path):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 64), "float32"))
    with builder.function("forward", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.nn.relu(x))
        builder.emit_func_output(result)
    target = Target({"kind": "llvm", "num-cores": 1})
    applied = pipeline(total_trials=0, target=target, work_dir=str(tmp_path))(builder.get())
    given = np.tile(np.array([np.nan, -1.0, 2.0, -np.inf], "float32"), (2, 16))
    found = run_forward(applied, target, [tvm.runtime.tensor(given)])
    np.testing.assert_array_equal(found, np.tile(np.array([np.nan, 0.0, 2.0, 0.0]), (2, 16)))


def test_the_pipeline_compiles_the_prefetches_that_were_measured(tmp_path):
    """``WarmBuilder`` measures a kernel whose weights are packed with prefetches."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((64, 256), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            weight = relax.const(np.ones((256, 1024), "float32"))
            result = builder.emit_output(relax.op.matmul(x, weight))
        builder.emit_func_output(result)
    mod, target = builder.get(), Target({**host_target().export(), "num-cores": 1})
    (task,) = ms.relax_integration.extract_tasks(lower(prepare_graph()(mod), target), target)
    workload = task.dispatched[0]
    measured = next(s for s in drawn_schedules(workload, target) if fetches(s.mod))
    database = open_database(tmp_path)
    entry = database.commit_workload(workload)
    database.commit_tuning_record(ms.database.TuningRecord(measured.trace, entry, [1e-3], target))
    assert fetches(pipeline(total_trials=0, target=target, work_dir=str(tmp_path))(mod), ran=True)


def fetches(mod, ran=False):
    """Whether a kernel has prefetches, after the pass that the builder runs, or as it is."""
    return "llvm.prefetch" in (mod if ran else PrefetchWeights()(mod)).script()


def drawn_schedules(mod, target):
    with fast_tune_contexts():
        context = ms.TuneContext(
            mod, target=target, space_generator="post-order-apply", rand_state=1
        )
        schedules = list(context.generate_design_space())
    replayer = ScreenedReplayer(mod, list(context.space_generator.postprocs), random.Random(0))
    history = TaskHistory(mod, target)
    return [each.schedule for each in RandomExploration(replayer, schedules, history).ask(64)]

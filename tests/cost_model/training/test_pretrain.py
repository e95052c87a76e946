# SPDX-License-Identifier: Apache-2.0
"""Training on databases: reading, rejected input, and printed output."""

import numpy as np
import pytest
from conformance.driving import drive
from conformance.objectives import bowl, timed
from conformance.workloads import LLVM, OTHER_LLVM, make_context, matmul, tile_all

from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm_droplet_ms.cli import main
from tvm_droplet_ms.cost_model import TransferModel
from tvm_droplet_ms.cost_model.features.program_features import FEATURES, ProgramFeatures
from tvm_droplet_ms.cost_model.pretrain import (
    format_held_out,
    pretrain,
    read_database,
    read_training_data,
)
from tvm_droplet_ms.cost_model.pretrained_model import PretrainedModel
from tvm_droplet_ms.cost_model.throughput import pairwise_accuracy
from tvm_droplet_ms.cost_model.training_data import (
    MeasuredWorkload,
    TrainingDataError,
    select_target,
    target_text,
)
from tvm_droplet_ms.session.database import open_database

SHAPES = [(32, 32, 32), (16, 64, 32), (64, 16, 16)]


def tuned(database, *shape, target=LLVM, trials=24):
    """Add the records of a run of random schedules and return their context."""
    context = make_context(
        ms.search_strategy.ReplayTrace(), matmul(*shape), tile_all, target=target
    )
    drive(context, timed(bowl, 3), max_trials=trials, database=database)
    return context


@pytest.fixture(scope="module")
def work_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tuned")
    database = open_database(directory)
    for shape in SHAPES:
        tuned(database, *shape)
    return directory


def test_read_database_returns_features_and_median_times():
    """One workload per task, with the features of its traces and its median times."""
    database = ms.database.MemoryDatabase()
    contexts = [tuned(database, *shape, trials=9) for shape in SHAPES[:2]]
    workloads = read_database(database)
    assert len({workload.name for workload in workloads}) == len(workloads) == 2
    assert sorted(len(workload.secs) for workload in workloads) == [9, 9]
    records = database.get_all_tuning_records()
    for context in contexts:
        own = [
            record
            for record in records
            if record.workload.mod["main"].script() == context.mod["main"].script()
        ]
        candidates = [record.as_measure_candidate() for record in own]
        features = ProgramFeatures().extract(context, candidates)
        (found,) = [
            workload for workload in workloads if np.array_equal(workload.features, features)
        ]
        assert found.secs.tolist() == [float(record.run_secs[1]) for record in own]
        assert found.target == target_text(LLVM)


def test_read_database_keeps_failed_records():
    database = ms.database.MemoryDatabase()
    context = tuned(database, 32, 32, 32, trials=4)
    workload = database.commit_workload(context.mod)
    record = database.get_all_tuning_records()[0]
    for secs in ([1e10], [float("inf")]):
        database.commit_tuning_record(
            TuningRecord(record.trace, workload, secs, LLVM, record.args_info)
        )
    (found,) = read_database(database)
    assert np.isinf(found.secs).sum() == 2 and len(found.secs) == 6
    assert (found.throughput == 0.0).sum() == 2 and found.throughput.max() == 1.0


def test_read_database_rejects_record_without_target():
    database = ms.database.MemoryDatabase()
    context = tuned(database, 32, 32, 32, trials=2)
    workload = database.commit_workload(context.mod)
    record = database.get_all_tuning_records()[0]
    database.commit_tuning_record(TuningRecord(record.trace, workload, [1e-3], None))
    with pytest.raises(TrainingDataError, match="names no target"):
        read_database(database)


def made_up(name, target) -> MeasuredWorkload:
    return MeasuredWorkload(name, target_text(target), np.zeros((3, 2), np.float32), np.ones(3))


def test_select_target_rejects_mixed_targets():
    mixed = [made_up("a", LLVM), made_up("b", OTHER_LLVM), made_up("c", LLVM)]
    with pytest.raises(
        TrainingDataError, match="found 2 targets: 6 records of .*skylake.*; 3 .*a72"
    ):
        select_target(mixed)
    assert [workload.name for workload in select_target(mixed, "cortex-a72")] == ["b"]
    assert [workload.name for workload in select_target(mixed, "skylake")] == ["a", "c"]
    with pytest.raises(TrainingDataError, match="found 2 like 'llvm'"):
        select_target(mixed, "llvm")
    with pytest.raises(TrainingDataError, match="found 0 like 'cuda'"):
        select_target(mixed, "cuda")
    with pytest.raises(TrainingDataError, match="no records"):
        select_target([])


def test_mix_targets_trains_on_all_targets(tmp_path, capsys):
    """The model is for one target but is trained on all of them."""
    features = np.tile(np.linspace(0, 1, 64, dtype=np.float32)[:, None], (1, FEATURES))
    secs = 1.0 / np.linspace(0.1, 1.0, 64)
    mixed = [
        MeasuredWorkload("few", target_text(LLVM), features[:2], secs[:2]),
        # A machine a thousand times slower: only the ranking within a workload counts.
        MeasuredWorkload("many", target_text(OTHER_LLVM), features, 1e3 * secs),
    ]
    apart, together = (
        pretrain(mixed, tmp_path / "m", target="skylake", mix_targets=mix) for mix in (False, True)
    )
    assert "64 records of 1 workloads" in capsys.readouterr().out
    assert apart.target == together.target == target_text(LLVM)
    accuracies = [
        pairwise_accuracy(trained.model.predict(features), secs) for trained in (apart, together)
    ]
    assert accuracies[0] < 0.6
    assert accuracies[1] > 0.9
    assert [workload["name"] for workload in together.summary["workloads"]] == ["few", "many"]
    assert apart.targets == {target_text(LLVM)}
    assert PretrainedModel.load(tmp_path / "m").targets == {
        target_text(LLVM),
        target_text(OTHER_LLVM),
    }


def test_pretrain_prints_accuracy_and_writes_model(work_dir, tmp_path, capsys):
    out = tmp_path / "cpu.model"
    assert main(["pretrain", str(work_dir), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "72 records of 3 workloads" in printed and "skylake-avx512" in printed
    rows = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 3 + 1
    accuracy, top_1, top_5 = (float(cell) for cell in rows[-1].strip("| ").split("|")[2:])
    # The best tiles of matrix products are similar; chance is 0.5.
    assert 0.6 < accuracy <= 1.0
    assert 0.3 < top_1 <= top_5 <= 1.0
    records = open_database(work_dir).get_all_tuning_records()
    best = min(records, key=lambda record: float(record.run_secs[0]))
    worst = max(records, key=lambda record: float(record.run_secs[0]))
    model = TransferModel.from_file(str(out))
    predicted = [
        model.predict(
            ms.TuneContext(record.workload.mod, target=LLVM), [record.as_measure_candidate()]
        )[0]
        for record in (best, worst)
    ]
    assert predicted[0] > predicted[1]


@pytest.mark.parametrize("kind, steps", [("treegru", 100), ("pacm", 40), ("pacm-stores", 40)])
def test_pretrain_trains_network(kind, steps, work_dir, tmp_path, capsys, monkeypatch):
    pytest.importorskip("jax")
    from tvm_droplet_papers.cost_models import training

    monkeypatch.setattr(training, "EPOCHS", 1)
    monkeypatch.setattr(training, "MIN_STEPS", steps)
    out = tmp_path / "network.model"
    command = ["pretrain", str(work_dir), "--model", kind, "--out", str(out)]
    assert main([*command, "--objective", "rank"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert 0.6 < float(rows[-1].strip("| ").split("|")[2]) <= 1.0
    record = open_database(work_dir).get_all_tuning_records()[0]
    context = ms.TuneContext(record.workload.mod, target=LLVM)
    predicted = TransferModel.from_file(str(out)).predict(context, [record.as_measure_candidate()])
    assert np.isfinite(predicted).all()


def test_training_data_file_gives_same_model_as_database(work_dir, tmp_path, capsys):
    """Databases and training data files can be combined."""
    workloads = read_training_data([work_dir])
    files = [tmp_path / f"{workload.name}.npz" for workload in workloads]
    for workload, file in zip(workloads, files, strict=True):
        workload.save(file, ProgramFeatures.schema)
    found = []
    for name, data in (("database", [work_dir]), ("files", files)):
        out = tmp_path / f"{name}.model"
        assert main(["pretrain", *map(str, data), "--out", str(out)]) == 0
        printed = capsys.readouterr().out.splitlines()
        found.append((printed[:-1], PretrainedModel.load(out).model.to_bytes()))
    assert found[0] == found[1]
    assert main(["pretrain", str(work_dir), str(files[0]), "--out", str(out)]) == 0
    assert "96 records of 3 workloads" in capsys.readouterr().out


def test_pretrain_reports_invalid_input(work_dir, tmp_path, capsys):
    def message(*arguments):
        assert main(["pretrain", *map(str, arguments), "--out", str(tmp_path / "m")]) == 1
        return capsys.readouterr().err

    (tmp_path / "empty").mkdir()
    assert "holds no database_workload.json" in message(tmp_path / "empty")
    for name in ("dense", "shipped"):
        said = message(name)
        assert f"{name} is no directory and no .npz file" in said
        assert f"droplet-ms space features {name} --out DIR` first" in said
    (tmp_path / "bad.npz").write_bytes(b"text")
    assert "bad.npz is no training data" in message(tmp_path / "bad.npz")
    (workload, *_) = read_training_data([work_dir])
    workload.save(tmp_path / "old.npz", "0: others")
    assert "features of schema '0: others', expected '2: 820" in message(tmp_path / "old.npz")
    assert "found 0 like 'cuda'" in message(work_dir, "--target", "cuda")
    directory = tmp_path / "mixed"
    database = open_database(directory)
    tuned(database, 32, 32, 32, trials=3)
    tuned(database, 32, 32, 32, target=OTHER_LLVM, trials=2)
    said = message(directory)
    assert "3 records of" in said and "2 records of" in said and "--target" in said
    assert main(["pretrain", str(directory), "--target", "a72", "--out", str(tmp_path / "m")]) == 0
    assert "none to hold out" in capsys.readouterr().out


def test_workload_without_pairs_does_not_spoil_the_mean():
    """A kernel that was measured once has no pairs to order."""
    rng = np.random.default_rng(0)
    width = ProgramFeatures.width
    data = [
        MeasuredWorkload(
            name,
            target_text(LLVM),
            rng.random((count, width)).astype(np.float32),
            rng.uniform(1.0, 2.0, count),
        )
        for name, count in (("many", 8), ("more", 8), ("one", 1))
    ]
    lines = format_held_out(data, "regression", 0).splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if "|" in line]
    accuracies = {row[1]: row[3] for row in cells}
    assert accuracies["one"] == "nan"
    mean = (float(accuracies["many"]) + float(accuracies["more"])) / 2
    assert float(accuracies["all"]) == pytest.approx(mean, abs=1e-3)


def test_a_workload_is_held_out_on_all_of_its_targets():
    """Times that follow from nothing are guessed, unless they were learned of another target."""
    generator = np.random.default_rng(0)
    data = []
    for name in ("a", "b", "c", "d"):
        features = generator.random((64, FEATURES), dtype=np.float32)
        secs = generator.uniform(1.0, 9.0, 64)
        for times, target in ((1e-6, LLVM), (1e-3, OTHER_LLVM)):
            data.append(MeasuredWorkload(name, target_text(target), features, times * secs))
    lines = format_held_out(data, "regression", 0).splitlines()
    (accuracy,) = [float(line.split("|")[3]) for line in lines if line.startswith("| all")]
    assert 0.4 < accuracy < 0.6
    assert "one workload and none to hold out" in format_held_out(data[:2], "regression", 0)

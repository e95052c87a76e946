# SPDX-License-Identifier: Apache-2.0
"""Comparisons of strategies with a cost model trained on other spaces."""

import contextlib
import io
import itertools
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from conformance.workloads import LLVM
from tile_spaces import ROWS, definition_of, made_up_secs, make_space, tiled

from tvm.s_tir.meta_schedule import MeasureCandidate
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm_droplet_ms.bench.compare import transfer
from tvm_droplet_ms.bench.compare.replay import find_experiment
from tvm_droplet_ms.bench.compare.results import CompareError, RunResult
from tvm_droplet_ms.bench.compare.runs import Rules, run_compare
from tvm_droplet_ms.bench.compare.transfer import learn_without_each
from tvm_droplet_ms.bench.fit_draft import drafted_space
from tvm_droplet_ms.bench.source_digest import REPLAYING, source_digest
from tvm_droplet_ms.bench.space import Space
from tvm_droplet_ms.bench.training import read_space, read_space_once
from tvm_droplet_ms.cost_model.draft.draft_file import read_draft
from tvm_droplet_ms.cost_model.features.program_features import ProgramFeatures
from tvm_droplet_ms.cost_model.pretrained_model import PretrainedModel
from tvm_droplet_ms.cost_model.throughput import pairwise_accuracy

NAMES = ("short", "middle", "long")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("spaces")
    made = {name: directory / f"{name}.json" for name in NAMES}
    for name, path in made.items():
        make_space(name).save(path)
    return made


def test_space_is_read_with_times_and_features_of_its_modules(files) -> None:
    workload = read_space(files["short"])
    space = make_space("short")
    assert workload.secs.tolist() == pytest.approx(space.times)
    context = definition_of("short").context(LLVM, "replay-trace")
    sch = tiled(context.mod, 16, 16)
    candidate = MeasureCandidate(sch, ArgInfo.from_entry_func(sch.mod, remove_preproc=True))
    (features,) = ProgramFeatures().extract(context, [candidate])
    np.testing.assert_array_equal(workload.features[-1], features)
    assert len(read_space(files["short"], most=7).secs) == 7


def test_features_are_cached(files, tmp_path: Path) -> None:
    first = read_space_once(files["short"], tmp_path / "kept" / "short.npz")
    written = (tmp_path / "kept" / "short.npz").stat().st_mtime_ns
    again = read_space_once(files["short"], tmp_path / "kept" / "short.npz")
    assert (tmp_path / "kept" / "short.npz").stat().st_mtime_ns == written
    assert (first.name, first.target) == (again.name, again.target)
    np.testing.assert_array_equal(first.features, again.features)
    np.testing.assert_array_equal(first.secs, again.secs)


def test_models_exclude_their_own_workload(files, tmp_path: Path) -> None:
    """A model does not learn from another space of the same workload either."""
    twin = Space(**{**vars(make_space("short")), "name": "twin"})
    twin.save(tmp_path / "twin.json")
    models = learn_without_each(
        [files["short"], files["long"]],
        [files["middle"], tmp_path / "twin.json"],
        tmp_path,
    )
    learned = {
        name: [workload["name"] for workload in PretrainedModel.load(path).summary["workloads"]]
        for name, path in models.items()
    }
    assert learned == {"short": ["long", "middle"], "long": ["middle", "short", "twin"]}


def test_model_ranks_space_that_it_has_not_seen(files, tmp_path: Path) -> None:
    """The other spaces have the same order."""
    models = learn_without_each(list(files.values()), [], tmp_path)
    for name, path in models.items():
        workload = read_space(files[name])
        pretrained = PretrainedModel.load(path)
        accuracy = pairwise_accuracy(pretrained.model.predict(workload.features), workload.secs)
        assert accuracy > 0.7, name


def test_draft_learns_from_the_others_and_ranks_space_that_it_has_not_seen(files, tmp_path) -> None:
    drafts = learn_without_each(list(files.values()), [], tmp_path, kind="draft")
    assert set(drafts) == set(files)
    for name, path in drafts.items():
        with zipfile.ZipFile(path) as archive:
            learned = json.loads(archive.read("header.json"))["workloads"]
        assert learned == sorted(set(files) - {name})
        space = drafted_space(files[name])
        assert space.usable.all()
        scores = read_draft(path).predict(space.symbols)
        assert pairwise_accuracy(scores, space.secs) > 0.7, name


def test_the_default_begins_with_what_the_prior_and_the_draft_begin_with(files, tmp_path) -> None:
    trained = {
        kind: learn_without_each([files["short"]], [files["long"]], tmp_path, kind=kind)["short"]
        for kind in ("prior", "draft")
    }
    strategy, _ = find_experiment("droplet with prior and draft").make(trained, 16)
    prior = PretrainedModel.load(trained["prior"])
    space = drafted_space(files["short"])
    features = read_space(files["short"]).features
    np.testing.assert_array_equal(
        strategy._prior._pretrained.model.predict(features), prior.model.predict(features)
    )
    np.testing.assert_array_equal(
        strategy._draft.trees.predict(space.symbols),
        read_draft(trained["draft"]).predict(space.symbols),
    )


def test_other_code_trains_again(files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    some = [files["short"], files["long"]]
    before = learn_without_each(some, [], tmp_path)
    assert learn_without_each(some, [], tmp_path) == before
    monkeypatch.setattr(transfer, "source_digest", lambda _: "of other code")
    after = learn_without_each(some, [], tmp_path)
    assert set(after.values()).isdisjoint(before.values())


def test_no_other_spaces_to_learn_from(files, tmp_path: Path) -> None:
    with pytest.raises(CompareError, match="no other workload than short"):
        learn_without_each([files["short"]], [], tmp_path)


def test_prior_finds_better_schedules_sooner(files, tmp_path: Path) -> None:
    """A whole comparison; the same command then trains and runs nothing again."""
    strategies = ["replay-trace", "droplet", "evolutionary with prior", "droplet with draft"]

    def compare(seeds: int) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = run_compare(list(files.values()), strategies, tmp_path, Rules(4, seeds))
        assert status == 0, out.getvalue()
        return out.getvalue()

    # A prior and a draft for each space.
    assert compare(2).count("learning from 2 spaces") == 6
    again = compare(2)
    assert "24 runs, 24 of them done before" in again and "learning" not in again

    def best(strategy: str) -> float:
        found = []
        for name, path in itertools.product(files, range(2)):
            code = source_digest(REPLAYING)[:12]
            result = RunResult.load(tmp_path / "runs" / code / name / strategy / f"{path}.json")
            assert (result.settings.learned == "") == (strategy == "replay-trace")
            found.append(min(trial.best_estimate for trial in result.trials) / ROWS[name])
        return float(np.mean(found))

    # The optimum of all three is the same; a tenth of the points are within 40% of it.
    assert best("droplet") < 1.2 * made_up_secs(4, 8) < best("replay-trace")
    assert best("evolutionary-with-prior") < best("replay-trace")
    assert best("droplet-with-draft") < best("replay-trace")

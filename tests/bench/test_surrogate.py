# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Surrogates: what they answer, what they admit of their errors, and what refuses them."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conformance.workloads import LLVM, tiled_matmul
from replaying import annotated, annotated_space, silent, tiled, tune

from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature
from tvm_droplet_ms.bench.compare.command import run_compare
from tvm_droplet_ms.bench.compare.results import CompareError
from tvm_droplet_ms.bench.definitions import find_definition
from tvm_droplet_ms.bench.files import load, measured_modules
from tvm_droplet_ms.bench.show import format_surrogates
from tvm_droplet_ms.bench.space import MeasuredModule, SpaceError
from tvm_droplet_ms.bench.surrogates.features import FEATURES, STORES, ModuleFeatures
from tvm_droplet_ms.bench.surrogates.fitting import SurrogateFitting
from tvm_droplet_ms.bench.surrogates.regressor import fit, predict
from tvm_droplet_ms.bench.surrogates.sample_collection import SampleCollection, of_each_sketch
from tvm_droplet_ms.bench.surrogates.sampling import Sampler
from tvm_droplet_ms.bench.surrogates.surrogate import FitError, Surrogate
from tvm_droplet_ms.bench.table import ReplayTable
from tvm_droplet_ms.cost_model.features.context_relations import relations
from tvm_droplet_ms.cost_model.features.loop_context import loop_nests
from tvm_droplet_ms.cost_model.features.loop_nest import BLOCKS, loop_nest_features


@pytest.fixture
def fitting(made_up_times: None, tmp_path: Path) -> SurrogateFitting:
    (tmp_path / "work").mkdir()
    collection = SampleCollection(tmp_path / "work", tiled(), LLVM)
    collection.add_uniform(30, silent)
    collection.add_near(20, 10, silent)
    made = SurrogateFitting(tiled(), "replaying:tiled", LLVM, collection)
    made.measure(range(3), silent)
    return made


def test_fit_error_of_hand_worked_times():
    passes = [(1.0, 1.0), (3.0, 1.0), (2.0, 4.0), (4.0, 4.0)]
    measured = [MeasuredModule(i, secs, 0.1, 0.1) for i, secs in enumerate(passes)]
    error = FitError.of([1.1, 2.0, 3.3, 3.2], measured)
    assert error.points == 4
    assert error.rank_correlation == pytest.approx(1 - 6 * 2 / (4 * 15))
    assert error.median_error == pytest.approx(0.1)
    # Of the passes, whose ranks are 1, 3, 2, 4 and 1.5, 1.5, 3.5, 3.5.
    assert error.timing_correlation == pytest.approx(2 / math.sqrt(5 * 4))
    once = [MeasuredModule(0, (1.0,), 0.1, 0.1), MeasuredModule(1, (2.0,), 0.1, 0.1)]
    assert math.isnan(FitError.of([1.0, 2.0], once).timing_correlation)


def test_features_are_those_of_the_stores_in_order():
    sampler = Sampler(annotated().context(LLVM, "replay-trace"), 1)
    _, candidate = sampler.uniform()
    (row,) = ModuleFeatures(LLVM).of([candidate.schedule.mod])
    context = annotated().context(LLVM, "replay-trace")
    (stores,) = PerStoreFeature().extract_from(context, [candidate.measure_candidate()])
    stores = stores.numpy()
    width = stores.shape[1]
    assert len(row) == FEATURES
    places = row[: (1 + STORES) * width].reshape(1 + STORES, width)
    np.testing.assert_allclose(places[0], stores.sum(axis=0), rtol=1e-5)
    np.testing.assert_allclose(places[1 : 1 + len(stores)], stores, rtol=1e-5)
    assert not places[1 + len(stores) :].any()
    nests = loop_nests(candidate.schedule.mod)
    of_loops = np.concatenate([loop_nest_features(nests), relations(nests)])
    np.testing.assert_array_equal(row[(1 + STORES) * width :], of_loops)


def test_loop_nest_features_of_a_hand_worked_schedule():
    schedule = tiled_matmul(16)
    extents = [4, 8, 16]
    init, update, *rest = loop_nest_features(loop_nests(schedule.mod)).reshape(BLOCKS, -1)
    inner = [1, 1, 2, 2, 3, 0]
    outer, within = [], 3.0
    for extent, kind in zip(reversed(extents), (0, 0, 1), strict=True):
        within += np.log2(extent)
        outer += [np.log2(extent), within, kind]
    np.testing.assert_allclose(update[:15], [*inner, *outer])
    assert not update[15:-2].any() and list(update[-2:]) == [64, 5]
    assert init[-1] == 4, "the initialisation has no loop over k"
    assert not np.any(rest)


def test_a_tuning_record_has_a_point():
    definition = find_definition("whole_dense")
    sampler = Sampler(definition.context(LLVM, "replay-trace"), 1)
    sampled, candidate = sampler.uniform()
    simplified = candidate.trace.simplified(remove_postproc=True)
    assert len(simplified.insts) < len(candidate.trace.insts)
    assert sampler.point(simplified) == sampled


def test_the_regressor_learns_a_monotone_function():
    features = np.random.default_rng(0).uniform(0, 1, (400, 3)).astype(np.float32)
    secs = 1e-6 * np.exp(3 * features[:, 0])
    regressor = fit(features[:300], list(secs[:300]), 0)
    held_out = [MeasuredModule(i, (float(t),), 0.1, 0.1) for i, t in enumerate(secs[300:])]
    assert FitError.of(predict(regressor, features[300:]), held_out).rank_correlation > 0.9


def test_sampled_points_make_their_modules():
    sampler = Sampler(annotated().context(LLVM, "replay-trace"), 1)
    space = annotated_space()
    points = []
    for _ in range(20):
        sampled, candidate = sampler.uniform()
        points.append(sampled)
        assert candidate.module in space.index
        assert ReplayTable(space).answers.answer(sampler.module(sampled)).structural_hash == (
            candidate.module
        )
    near = [sampler.near(points) for _ in range(50)]
    assert all(found[1].module in space.index for found in near if found)
    assert len({found[0] for found in near if found}) > 20


def test_a_sample_has_what_was_asked_for(fitting: SurrogateFitting):
    surrogate = fitting.surrogate()
    assert len(surrogate.sample.modules) == 50
    assert surrogate.groups.count("uniform") == 30
    assert len(surrogate.space.modules) == 30
    assert not surrogate.sample.closed
    assert all(len(module.secs) == 3 for module in surrogate.sample.modules)


def test_rounds_go_where_it_is_fast(fitting: SurrogateFitting):
    surrogate = fitting.surrogate()
    times = dict(zip(surrogate.sample.modules, surrogate.groups, strict=True))
    near = [module.time for module, group in times.items() if group == "near"]
    uniform = [module.time for module, group in times.items() if group == "uniform"]
    assert np.median(near) < np.median(uniform)


def test_each_sketch_has_its_share():
    times = {1: 5.0, 2: 1.0, 3: 2.0, 4: 3.0, 5: 4.0, 6: 9.0}
    sketches = {1: 0, 2: 1, 3: 1, 4: 1, 5: 2, 6: 0}
    assert of_each_sketch(list(times), times, sketches.__getitem__) == [2, 5, 1, 3, 6, 4]


def test_a_stopped_sample_is_resumed(fitting: SurrogateFitting, tmp_path: Path):
    again = SampleCollection(tmp_path / "work", tiled(), LLVM)
    again.add_uniform(30, silent)
    again.add_near(20, 10, silent)
    assert list(again.modules) == list(fitting._collection.modules)


def test_answers_are_the_regressors_with_the_noise_of_the_sample(fitting: SurrogateFitting):
    surrogate = fitting.surrogate()
    sampler = Sampler(tiled().context(LLVM, "replay-trace"), 5)
    for _ in range(10):
        _, candidate = sampler.uniform()
        mod = candidate.schedule.mod
        answer = surrogate.answer(mod)
        expected = predict(surrogate.regressor, ModuleFeatures(LLVM).of([mod]))[0]
        assert answer.time == pytest.approx(expected)
        assert answer.secs == pytest.approx([expected / 1.01, expected, expected * 1.02 / 1.01])
        assert surrogate.answer(mod) == answer


def test_searches_run_on_it_and_are_held_out(fitting: SurrogateFitting):
    fitting.add_search("evolutionary", "replay-trace", 12, seed=3)
    fitting.add_search("droplet 0", "replay-trace", 12, seed=4)
    assert "evolutionary" not in fitting.surrogate().groups, "it is not measured yet"
    fitting.measure(range(3), silent)
    surrogate = fitting.surrogate()
    assert surrogate.groups.count("droplet 0") > 0 and "droplet 0" not in surrogate.errors
    held_out = surrogate.groups.count("evolutionary")
    assert held_out > 0
    assert surrogate.errors["evolutionary"].points == held_out
    assert surrogate.errors["all searches"] == surrogate.errors["evolutionary"]
    table = ReplayTable(surrogate)
    tune(table, "evolutionary", 16, definition=tiled())
    assert len(table.trials) >= 16
    assert all(math.isfinite(trial.secs) for trial in table.trials)


def test_a_file_keeps_the_answers(fitting: SurrogateFitting, tmp_path: Path):
    surrogate = fitting.surrogate()
    surrogate.save(tmp_path / "a.json")
    loaded = load(tmp_path / "a.json")
    assert isinstance(loaded, Surrogate)
    assert loaded.errors == surrogate.errors
    sampler = Sampler(tiled().context(LLVM, "replay-trace"), 5)
    for _ in range(5):
        _, candidate = sampler.uniform()
        mod = candidate.schedule.mod
        assert loaded.answer(mod).time == pytest.approx(surrogate.answer(mod).time, rel=1e-6)
    assert "cross-validation" in format_surrogates([loaded])
    assert measured_modules(loaded).name == "tiled"


def test_a_regressor_of_other_features_is_refused(
    fitting: SurrogateFitting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fitting.surrogate().save(tmp_path / "a.json")
    monkeypatch.setattr(f"{Surrogate.__module__}.FEATURES", FEATURES + 1)
    with pytest.raises(SpaceError, match=rf"{FEATURES} features .* expected {FEATURES + 1}; build"):
        load(tmp_path / "a.json")


def test_a_surrogate_that_ranks_badly_decides_nothing(fitting: SurrogateFitting, tmp_path: Path):
    surrogate = fitting.surrogate()
    good, bad = FitError(9, 0.9, 0.2, 0.99), FitError(9, 0.89, 0.2, 0.99)
    errors = dict.fromkeys(("cross-validation", "all searches", "evolutionary"), good)
    assert replace(surrogate, errors=errors).is_trusted
    for held_out in errors:
        distrusted = replace(surrogate, errors={**errors, held_out: bad})
        assert not distrusted.is_trusted
    assert not replace(surrogate, errors={"cross-validation": good}).is_trusted
    distrusted.save(tmp_path / "bad.json")
    with pytest.raises(CompareError, match=r"bad\.json .*correlation below 0\.9"):
        run_compare([tmp_path / "bad.json"], ["random"], tmp_path / "out", trials=4, seeds=1)


@pytest.mark.parametrize("text", ["{", '{"format": "tvm-droplet-ms surrogate", "version": 1}'])
def test_a_torn_file_is_named(tmp_path: Path, text: str):
    (tmp_path / "torn.json").write_text(text)
    with pytest.raises(SpaceError, match=r"torn\.json"):
        load(tmp_path / "torn.json")


def test_draws_are_seeded():
    def draw(seed: int) -> list:
        sampler = Sampler(tiled().context(LLVM, "replay-trace"), seed)
        return [sampler.uniform()[0] for _ in range(5)]

    assert draw(1) == draw(1)
    assert draw(2) != draw(1)

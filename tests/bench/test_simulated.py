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
"""Searches with times that are partly simulated."""

import math

import numpy as np
import pytest
from replaying import annotated_space, tune

from tvm_droplet_ms.bench.compare.results import CompareError, RunResult
from tvm_droplet_ms.bench.compare.source_digest import PACKAGE
from tvm_droplet_ms.bench.simulated import command
from tvm_droplet_ms.bench.simulated.ratios import Ratio, ratio_at, table
from tvm_droplet_ms.bench.simulated.simulated_table import SimulatedTable
from tvm_droplet_ms.bench.simulated.simulation import Simulation
from tvm_droplet_ms.bench.simulated.variants import Beliefs, make_variant
from tvm_droplet_ms.bench.table import Trial
from tvm_droplet_ms.cost_model.features.program_features import FEATURES


@pytest.fixture(scope="module")
def noisy():
    """Times of two features, the second of them noise that no feature tells."""
    generator = np.random.default_rng(0)
    features = generator.random((800, 3)).astype(np.float32)
    secs = 1e-3 * np.exp(2.0 * features[:, 0] + 0.3 * generator.standard_normal(800))
    return features, secs, Simulation.fit(features, secs)


def test_simulated_times_spread_as_measured_ones_do(noisy):
    features, secs, simulation = noisy
    simulated = np.log([simulation.secs(7 * row, features[row]) for row in range(0, 800, 5)])
    measured = np.log(secs[::5])
    assert simulated.mean() == pytest.approx(measured.mean(), abs=0.1)
    assert simulated.std() == pytest.approx(measured.std(), rel=0.2)
    assert np.corrcoef(simulated, measured)[0, 1] > 0.7


def test_errors_are_those_of_programs_the_trees_have_not_seen(noisy):
    _, _, simulation = noisy
    # The noise of 0.3, and what 600 programs cannot teach.
    assert 0.28 < simulation.errors.std() < 0.45


def test_error_belongs_to_the_module(noisy):
    features, _, simulation = noisy
    first = simulation.secs(123, features[0])
    assert simulation.secs(123, features[0]) == first
    others = [simulation.secs(hash_of, features[0]) for hash_of in (124, 123 << 32, 2**63 + 1)]
    assert len({first, *others}) == 4


def test_error_is_of_programs_that_seem_as_fast():
    """Two levels of time: the fast programs are predicted exactly, the slow ones are not."""
    generator = np.random.default_rng(1)
    slow = np.arange(600) % 2
    secs = np.exp(2.0 * slow + 0.5 * slow * generator.standard_normal(600))
    features = slow[:, None].astype(np.float32)
    simulation = Simulation.fit(features, secs)
    fast, others = (
        np.log(
            [simulation.secs(module, np.array([level], dtype=np.float32)) for module in range(50)]
        )
        for level in (0.0, 1.0)
    )
    assert np.abs(fast).max() < 0.05
    assert 0.4 < others.std() < 0.6


def test_kept_simulation_is_the_same(noisy, tmp_path):
    features, _, simulation = noisy
    simulation.save(tmp_path / "simulation.npz")
    again = Simulation.load(tmp_path / "simulation.npz")
    expected = [simulation.secs(row, features[row]) for row in range(20)]
    assert [again.secs(row, features[row]) for row in range(20)] == expected


def test_ratio_by_hand():
    ratio = Ratio.of([0.5, 2.0, 1.0])
    assert ratio.mean == pytest.approx(1.0)
    # Logarithms -0.693, 0.693, 0: their deviation is 0.693.
    assert ratio.error == pytest.approx(math.log(2.0) / math.sqrt(3))
    assert ratio.pairs == 3
    assert math.isnan(Ratio.of([0.7]).error)


COURSES = {
    "old": {("a", 0): [8.0, 4.0], ("a", 1): [8.0, 8.0], ("b", 0): [1.0, 1.0]},
    "new": {("a", 0): [4.0, 4.0], ("a", 1): [4.0], ("c", 0): [9.0, 9.0]},
}


def test_ratios_are_paired_by_space_and_seed():
    first, last = (ratio_at(COURSES, "new", "old", trials) for trials in (1, 2))
    assert (first.mean, first.error, first.pairs) == (0.5, 0.0, 2)
    # 4 / 4, and 4 / 8 of a run that ended after one trial.
    assert last.mean == pytest.approx(math.sqrt(0.5))
    assert ratio_at(COURSES, "new", "old", 1, "b") is None


def test_table_of_ratios():
    header, row = table(COURSES, "old", (1, 2))
    assert header == ["time over that of old", "pairs", "at 1", "at 2"]
    assert row[:3] == ["new", "2", "0.500 (0.000)"]
    names = [line[0] for line in table(COURSES, "old", (1,), by_space=True)[1:]]
    assert names == ["new, a"]


def test_variants_need_their_files():
    with pytest.raises(CompareError, match="'best' is no variant, expected one of neither, draft"):
        make_variant("best", Beliefs())
    with pytest.raises(CompareError, match="uses a draft, and there is none: give --draft FILE"):
        make_variant("draft", Beliefs())
    with pytest.raises(CompareError, match="uses a prior, and there is none: give --prior FILE"):
        make_variant("both", Beliefs())


class Flat:
    """Predicts a millisecond for every program, exactly."""

    def secs(self, module, features):
        assert features.shape == (FEATURES,)
        return 1e-3


def test_measured_programs_keep_their_times_and_others_are_simulated():
    answers = SimulatedTable(annotated_space(leave_out=60), Flat())
    measured = {one.structural_hash: one.time for one in answers.space.modules}
    tune(answers, "replay-trace", 16)
    times = {trial.module: trial.best_estimate for trial in answers.trials}
    assert times == {module: measured.get(module, 1e-3) for module in times}
    assert 1e-3 in times.values() and len(set(times.values())) > 2


def made_up(job):
    """The result of a run, in which the draft halves the time."""
    secs = 1.0 if job.settings.strategy == "draft" else 2.0
    trials = [Trial(0, secs, secs, 0.0, 0.0, 0.0, None)] * job.settings.trials
    return RunResult(job.settings, tuple(trials), 0.0, {})


def test_command_prints_ratios_and_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    done = []

    def run_jobs(jobs, **_):
        for job in jobs[:3]:
            done.append(job.file)
            result = made_up(job)
            result.save(job.file)
            yield job, result

    monkeypatch.setattr(command, "run_jobs", run_jobs)
    monkeypatch.setattr(command, "simulate_once", lambda path, directory: path)
    draft = tmp_path / "copy.draft"
    draft.write_bytes((PACKAGE / "draft" / "pretrained" / "llvm.draft").read_bytes())
    arguments = f"--out {tmp_path} --spaces whole_softmax --trials 8 --seeds 2 --draft {draft}"
    with pytest.raises(KeyError):  # One of four runs is missing.
        command.main(arguments.split())
    assert command.main([*arguments.split(), "--markdown"]) == 0
    assert len(done) == len(set(done)) == 4
    printed = " ".join(capsys.readouterr().out.split())
    assert "| draft | 2 | 0.500 (0.000) |" in printed
    assert "| draft, whole_softmax | 2 | 0.500 (0.000) |" in printed


def test_command_refuses_a_variant_without_its_file(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main(["--out", str(tmp_path), "--variants", "draft"])
    assert "give --draft FILE" in capsys.readouterr().err

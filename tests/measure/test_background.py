# SPDX-License-Identifier: Apache-2.0
"""Batches that are measured while the next one is proposed."""

import threading

from tvm import IRModule
from tvm.s_tir.meta_schedule.builder import BuilderInput, BuilderResult
from tvm.s_tir.meta_schedule.runner import RunnerInput, RunnerResult
from tvm.target import Target
from tvm_droplet_ms.measure.background import BackgroundRunner, PatientBuilder

PATIENCE_SECS = 60


class Measured:
    """A future of a made-up runner: the time is the length of the path."""

    def __init__(self, runner_input):
        self.secs = float(len(runner_input.artifact_path))

    def result(self):
        return RunnerResult([self.secs], None)


class GatedRunner:
    """Measures a batch once its gate is open."""

    def __init__(self):
        self.gate = threading.Event()
        self.measured = []
        self.end = None

    def end_by(self, moment):
        self.end = moment

    def run(self, batch):
        assert self.gate.wait(PATIENCE_SECS)
        self.measured.append([entry.artifact_path for entry in batch])
        return [Measured(entry) for entry in batch]

    def close(self):
        self.gate.set()


class CountingBuilder:
    def __init__(self):
        self.builds = 0
        self.is_closed = False
        self.end = None

    def end_by(self, moment):
        self.end = moment

    def build(self, batch):
        self.builds += 1
        return [BuilderResult("path", None) for _ in batch]

    def close(self):
        self.is_closed = True


def secs_of(future):
    return [float(secs) for secs in future.result().run_secs]


def inputs(*paths):
    return [RunnerInput(path, "cpu", []) for path in paths]


def test_the_end_of_the_time_is_passed_on():
    inner, counting = GatedRunner(), CountingBuilder()
    runner = BackgroundRunner(inner)
    runner.end_by(3.0)
    PatientBuilder(counting, runner).end_by(4.0)
    assert (inner.end, counting.end) == (3.0, 4.0)
    runner.close()


def test_run_returns_before_the_batch_is_measured():
    inner = GatedRunner()
    runner = BackgroundRunner(inner)
    futures = runner.run(inputs("a", "bb"))
    assert [future.done() for future in futures] == [False, False]
    inner.gate.set()
    assert [secs_of(future) for future in futures] == [[1.0], [2.0]]
    assert all(future.done() for future in futures)
    runner.close()


def test_batches_are_measured_one_after_the_other():
    inner = GatedRunner()
    runner = BackgroundRunner(inner)
    paths = ["a", "bb", "ccc"]
    futures = [runner.run(inputs(path))[0] for path in paths]
    inner.gate.set()
    assert [secs_of(future) for future in futures] == [[1.0], [2.0], [3.0]]
    assert inner.measured == [[path] for path in paths]
    runner.close()


def test_nothing_is_built_while_something_is_measured():
    inner, builds = GatedRunner(), CountingBuilder()
    runner = BackgroundRunner(inner)
    builder = PatientBuilder(builds, runner)
    batch = [BuilderInput(IRModule({}), Target("llvm"))]
    (result,) = builder.build(batch)
    assert (result.artifact_path, builds.builds) == ("path", 1)
    (future,) = runner.run(inputs("a"))
    building = threading.Thread(target=builder.build, args=(batch,))
    building.start()
    building.join(0.2)
    assert builds.builds == 1 and not future.done()
    inner.gate.set()
    building.join(PATIENCE_SECS)
    assert builds.builds == 2 and future.done()
    runner.close()
    builder.close()
    assert builds.is_closed


def test_a_runner_that_raises_fails_its_batch_as_the_machine_and_no_other():
    class Broken(GatedRunner):
        def run(self, batch):
            if batch[0].artifact_path == "bad":
                raise OSError("no space")
            return super().run(batch)

    inner = Broken()
    inner.gate.set()
    runner = BackgroundRunner(inner)
    (bad,), (good,) = runner.run(inputs("bad")), runner.run(inputs("good"))
    result = bad.result()
    assert list(result.run_secs) == []
    assert result.error_msg == "machinery failure: BackgroundRunner: OSError: no space"
    assert secs_of(good) == [4.0]
    assert runner.failures == {"machinery": 1}
    runner.wait()
    runner.close()

# SPDX-License-Identifier: Apache-2.0
"""Programs in processes of their own, timed in turns."""

import numpy as np
import pytest

from benchmarks.models import programs
from benchmarks.models.baselines import ModelFiles
from benchmarks.models.programs import Program, time_in_turns
from tvm_droplet_ms.measure import TaskFailed

GIVEN = {"model": "squeezenet", "threads": 1}


@pytest.fixture
def image():
    return np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype("float32")


def test_a_program_runs_the_model_in_its_own_process(tmp_path, image):
    onnxruntime = pytest.importorskip("onnxruntime")
    program = Program({**GIVEN, "name": "ONNX Runtime"}, [image], tmp_path)
    try:
        assert program.time() > 0
    finally:
        program.close()
    session = onnxruntime.InferenceSession(str(ModelFiles("squeezenet", tmp_path).onnx))
    (expected,) = session.run(None, {session.get_inputs()[0].name: image})
    (output,) = program.outputs
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


def test_a_program_that_cannot_run_the_model_says_why(tmp_path, image):
    with pytest.raises(TaskFailed, match="KeyError: 'no such program'"):
        Program({**GIVEN, "name": "no such program"}, [image], tmp_path)


class MadeUpProgram:
    """Takes as many seconds as programs were timed; fails in its third run where it is told to."""

    def __init__(self, name, calls, fails=False):
        self.name, self.calls, self.fails = name, calls, fails

    def time(self):
        self.calls.append(self.name)
        if self.fails and self.calls.count(self.name) == 3:
            raise TaskFailed("run", "its process was ended by SIGSEGV")
        return float(len(self.calls))


def test_programs_are_timed_in_turns_and_the_first_rounds_do_not_count(monkeypatch):
    monkeypatch.setattr(programs, "PAUSE_SECS", 0)
    calls = []
    secs, failures = time_in_turns({name: MadeUpProgram(name, calls) for name in "ab"}, rounds=2)
    assert calls == list("abababab") and not failures
    assert secs == {"a": [5.0, 7.0], "b": [6.0, 8.0]}


def test_a_program_that_fails_in_a_round_leaves_the_others_their_times(monkeypatch):
    monkeypatch.setattr(programs, "PAUSE_SECS", 0)
    calls = []
    given = {name: MadeUpProgram(name, calls, fails=name == "a") for name in "ab"}
    secs, failures = time_in_turns(given, rounds=2)
    assert calls == list("abababb") and list(secs) == ["b"] and len(secs["b"]) == 2
    assert str(failures["a"]) == "its process was ended by SIGSEGV"

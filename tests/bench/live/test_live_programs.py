# SPDX-License-Identifier: Apache-2.0
"""Programs in processes of their own, timed in turns."""

import numpy as np
import pytest

from tvm_droplet_ms.bench.live import programs
from tvm_droplet_ms.bench.live.baselines import ModelFiles
from tvm_droplet_ms.bench.live.programs import Program, ProgramError, time_in_turns


@pytest.fixture
def settings(tmp_path):
    """A program's settings without its name, and the inputs that they name."""
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype("float32")
    np.savez(tmp_path / "inputs.npz", image)
    return {"model": "squeezenet", "threads": 1, "inputs": str(tmp_path / "inputs.npz")}, image


def test_a_program_runs_the_model_in_its_own_process(tmp_path, settings):
    onnxruntime = pytest.importorskip("onnxruntime")
    given, image = settings
    program = Program({**given, "name": "ONNX Runtime"}, tmp_path)
    try:
        assert program.time() > 0
    finally:
        program.close()
    session = onnxruntime.InferenceSession(str(ModelFiles("squeezenet", tmp_path).onnx))
    (expected,) = session.run(None, {session.get_inputs()[0].name: image})
    (output,) = program.outputs
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


def test_a_program_that_cannot_run_the_model_says_why(tmp_path, settings):
    given, _ = settings
    with pytest.raises(ProgramError, match="KeyError: 'no such program'"):
        Program({**given, "name": "no such program"}, tmp_path)


class MadeUpProgram:
    def __init__(self, name, calls):
        self.name, self.calls = name, calls

    def time(self):
        self.calls.append(self.name)
        return float(len(self.calls))


def test_programs_are_timed_in_turns_and_the_first_rounds_do_not_count(monkeypatch):
    monkeypatch.setattr(programs, "PAUSE_SECS", 0)
    calls = []
    secs = time_in_turns({name: MadeUpProgram(name, calls) for name in "ab"}, rounds=2)
    assert calls == list("abababab")
    assert secs == {"a": [5.0, 7.0], "b": [6.0, 8.0]}

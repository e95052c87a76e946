# SPDX-License-Identifier: Apache-2.0
"""Failures of a GPU in the final check, on a device that runs, or fails, as it is told."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tvm.target import Target
from tvm_droplet_ms.kernel_tuning.check.arguments import Argument
from tvm_droplet_ms.kernel_tuning.check.library_runs import save_arrays
from tvm_droplet_ms.kernel_tuning.check.verification import (
    ROUNDS,
    CannotCheck,
    DeviceFailed,
    Verifier,
)
from tvm_droplet_ms.measure import TaskFailed

GPU, CPU = Target("nvidia/nvidia-h100"), Target("llvm")
OUT = [np.arange(4, dtype="float32")]
MEMORY = TaskFailed("error", "Traceback\n\nCUDA: out of memory")
ILLEGAL = TaskFailed("crash", "its process was ended by SIGABRT")
LOST = TaskFailed("machinery", "no server is left")


def verifier(folder, target, outcomes):
    """A verifier whose processes end as told: a failure, outputs, or times."""
    left = list(outcomes)

    def run(_secs, _function, *task):
        outcome = left.pop(0)
        if isinstance(outcome, TaskFailed):
            raise outcome
        if isinstance(outcome, float):
            return [outcome]
        save_arrays(Path(task[3]), outcome)
        return 1e-3, ""

    save_arrays(folder / "expected.npz", OUT)
    pool = SimpleNamespace()
    made = Verifier(folder, target, [Argument("x", (4,), "float32")], OUT, [1e-5], pool, run)
    return made, left


def test_one_failure_is_tried_again(tmp_path):
    made, left = verifier(tmp_path, GPU, [ILLEGAL, OUT])
    assert made.check(Path("a.so")).is_right and not left


def test_the_second_failure_is_the_device_s(tmp_path):
    made, left = verifier(tmp_path, GPU, [MEMORY, ILLEGAL, OUT])
    words = "failed twice: CUDA: out of memory and its process was ended by SIGABRT$"
    with pytest.raises(DeviceFailed, match=words):
        made.check(Path("a.so"))
    assert len(left) == 1


def test_a_wrong_output_is_the_schedule_s(tmp_path):
    made, left = verifier(tmp_path, GPU, [[OUT[0] + 1.0], OUT])
    assert made.check(Path("a.so")).is_right is False
    assert len(left) == 1


def test_on_a_cpu_a_failure_is_the_schedule_s(tmp_path):
    made, left = verifier(tmp_path, CPU, [ILLEGAL, OUT])
    verdict = made.check(Path("a.so"))
    assert verdict.is_right is False and verdict.reason == str(ILLEGAL)
    assert len(left) == 1


def test_a_failure_of_the_machinery_is_not_tried_again(tmp_path):
    made, left = verifier(tmp_path, GPU, [LOST, OUT])
    with pytest.raises(CannotCheck, match="no server is left"):
        made.check(Path("a.so"))
    assert len(left) == 1


def test_a_round_of_timings_is_tried_again(tmp_path):
    secs = [float(number) for number in range(1, ROUNDS + 1)]
    made, left = verifier(tmp_path, GPU, [*secs[:2], ILLEGAL, *secs[2:]])
    assert made.time({"a": Path("a.so")})["a"].secs == np.median(secs)
    assert not left
    made, _ = verifier(tmp_path, GPU, [1.0, ILLEGAL, ILLEGAL])
    with pytest.raises(DeviceFailed):
        made.time({"a": Path("a.so")})

# SPDX-License-Identifier: Apache-2.0
"""Checks and timings whose processes end in failures that are made up."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tvm.target import Target
from tvm_droplet_ms.measure import TaskFailed
from tvm_droplet_ms.measure.allocation import save_arrays
from tvm_droplet_ms.tuning.kernel.check.arguments import Argument
from tvm_droplet_ms.tuning.kernel.check.verification import (
    ROUNDS,
    CannotCheck,
    DeviceFailed,
    Verifier,
)

GPU, CPU = Target("nvidia/nvidia-h100"), Target("llvm")
OUT = [np.arange(4, dtype="float32")]
MEMORY = TaskFailed("error", "Traceback\n\nCUDA: out of memory")
ILLEGAL = TaskFailed("crash", "its process was ended by SIGABRT")
LOST = TaskFailed("machinery", "no server is left")


def verifier(folder, target, outcomes):
    """A verifier whose processes end as told: a failure, outputs, or times."""
    left = list(outcomes)

    def run(_secs, _function, *task):
        if "moved" in task[3]:
            raise ILLEGAL
        outcome = left.pop(0)
        if isinstance(outcome, TaskFailed):
            raise outcome
        if isinstance(outcome, float):
            return [outcome]
        save_arrays(Path(task[3]), dict(enumerate(outcome)))
        return 1e-3, ""

    save_arrays(folder / "expected.npz", dict(enumerate(OUT)))
    pool = SimpleNamespace()
    made = Verifier(folder, target, [Argument("x", (4,), "float32")], OUT, [1e-5], pool, run)
    return made, left


@pytest.mark.parametrize(
    ("target", "outcomes", "is_right", "count"),
    [
        (GPU, [ILLEGAL, OUT], True, 2),
        (GPU, [[OUT[0] + 1.0], OUT], False, 1),
        (CPU, [ILLEGAL, OUT], False, 1),
    ],
    ids=["one failure is tried again", "a wrong output", "on a CPU it is the schedule's"],
)
def test_what_is_the_schedule_s_fault(target, outcomes, is_right, count, tmp_path):
    made, left = verifier(tmp_path, target, outcomes)
    verdict = made.check(Path("a.so"))
    assert verdict.is_right is is_right and len(left) == len(outcomes) - count
    assert target != CPU or verdict.reason == str(ILLEGAL)


@pytest.mark.parametrize(
    ("outcomes", "error", "words"),
    [
        (
            [MEMORY, ILLEGAL, OUT],
            DeviceFailed,
            "failed twice: CUDA: out of memory and its process was ended by SIGABRT$",
        ),
        ([LOST, OUT], CannotCheck, "no server is left"),
    ],
)
def test_the_second_failure_is_the_device_s_and_the_machinery_is_asked_once(
    outcomes, error, words, tmp_path
):
    made, left = verifier(tmp_path, GPU, outcomes)
    with pytest.raises(error, match=words):
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

# SPDX-License-Identifier: Apache-2.0
"""No schedule that is left to measure computes something else than its kernel."""

import random
import sys

import numpy as np
import pytest
from random_kernels import random_kernel

import tvm
from tvm.s_tir import Trace
from tvm.s_tir.meta_schedule import TuneContext
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.design_space.sound_space import FROM_TARGET, sound_space
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 4})


def compare(seed: int, draws: int, target: tvm.target.Target = TARGET) -> tuple[int, list[str]]:
    """Run random schedules of a random kernel: how many, and the traces of those that are wrong."""
    mod, data, expected = random_kernel(seed)
    with fast_tune_contexts():
        space = sound_space(FROM_TARGET, mod, target)
        context = TuneContext(mod, target=target, space_generator=space, rand_state=seed + 1)
        sketches = list(context.generate_design_space())
        replayer = ScreenedReplayer(
            mod, list(context.space_generator.postprocs), random.Random(seed)
        )
    seen, wrong = set(), []
    for _ in range(draws):
        trace = random.Random(f"{seed} {len(seen)}").choice(sketches).trace
        candidate = replayer.replay(Trace(trace.insts, {}))
        if candidate is None or str(candidate.schedule.mod) in seen:
            continue
        seen.add(str(candidate.schedule.mod))
        found = tvm.runtime.empty(expected.shape, "float32")
        tvm.compile(candidate.schedule.mod, target)["main"](tvm.runtime.tensor(data), found)
        if not np.allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4):
            wrong.append(str(candidate.schedule.trace))
    return len(seen), wrong


@pytest.mark.parametrize("seed", range(16))
def test_random_schedules_of_random_kernels(seed):
    count, wrong = compare(seed, 4)
    assert count and not wrong


if __name__ == "__main__":  # python test_random_kernels.py FIRST LAST DRAWS [CPU]
    first, last, draws = map(int, sys.argv[1:4])
    cpu = tvm.target.Target({**TARGET.export(), "mcpu": sys.argv[4]}) if sys.argv[4:] else TARGET
    total = 0
    for number in range(first, last):
        try:
            count, wrong = compare(number, draws, cpu)
        except tvm.s_tir.ScheduleError:  # TVM's own rules raise for some kernels.
            print(number, "has no design space", flush=True)
            continue
        total += count
        if wrong:
            print(number, len(wrong), "wrong:", wrong[0], flush=True)
    print(total, "schedules of", last - first, "kernels", flush=True)

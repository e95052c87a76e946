# SPDX-License-Identifier: Apache-2.0
"""The check of outputs refuses no right schedule of any workload of the package."""

import random
from pathlib import Path

import pytest

from tvm.s_tir import Schedule, Trace
from tvm_droplet_ms.bench.definition import find_definition
from tvm_droplet_ms.bench.space import Space, shipped_training_files
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.tuning.kernel.check.arguments import (
    arguments_of,
    random_arrays,
    summed,
    tolerance,
)
from tvm_droplet_ms.tuning.kernel.check.verification import Verifier, verifying_pool

SCHEDULES = 3
QUICK = ("dense", "softmax", "convolution_transposed", "layer_norm")


@pytest.fixture(scope="module")
def pool():
    workers = verifying_pool()
    yield workers
    workers.close()


def paths():
    files = shipped_training_files()
    return [
        pytest.param(
            path,
            id=path.name.partition(".")[0],
            marks=[] if path.name.partition(".")[0] in QUICK else pytest.mark.slow,
        )
        for path in files
    ]


@pytest.mark.parametrize("path", paths())
def test_random_schedules_are_right(path: Path, pool, tmp_path: Path):
    definition = find_definition(Space.load(path).definition)
    target = cpu_target("auto", 1)
    with fast_tune_contexts():
        context = definition.context(target, "replay-trace")
        arguments = arguments_of(context.mod)
        limits = [tolerance(one.numpy_dtype, summed(context.mod)) for one in arguments]
        arrays = random_arrays(arguments, 0)
        verifier = Verifier(tmp_path, target, arguments, arrays, limits, pool)
        unchecked = verifier.expect(context.mod).reason
        assert unchecked == ""
        spaces = context.generate_design_space()
        generator = random.Random(0)
        checked = 0
        for number in range(40):
            trace = Trace(spaces[number % len(spaces)].trace.insts, {})
            schedule = Schedule(context.mod, seed=generator.randint(1, 2**31 - 2))
            trace.apply_to_schedule(schedule, remove_postproc=True)
            schedule.enter_postproc()
            if not all(step.apply(schedule) for step in context.space_generator.postprocs):
                continue
            verdict = verifier.check(verifier.build(f"schedule{number}", schedule.mod))
            assert verdict.is_right, verdict.reason
            checked += 1
            if checked == SCHEDULES:
                return
        pytest.fail(f"only {checked} schedules could be built")

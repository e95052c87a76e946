# SPDX-License-Identifier: Apache-2.0
"""Verdicts on outputs: rounding that is amplified, and outputs that say nothing."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tvm import te
from tvm.ir import IRModule
from tvm.target import Target
from tvm_droplet_ms.measure.allocation import save_arrays
from tvm_droplet_ms.tuning.kernel.check.arguments import Argument, tolerance
from tvm_droplet_ms.tuning.kernel.check.verification import Verifier

SUMMED = 1024
TOLERANCE = tolerance(np.dtype("float32"), SUMMED)


def kernel(rows, terms):
    a = te.placeholder((rows, terms), "float32", name="a")
    k = te.reduce_axis((0, terms), "k")
    total = te.compute((rows,), lambda i: te.sum(a[i, k], k), name="y")
    return IRModule({"main": te.create_prim_func([a, total])})


def verdict(folder, function, found, rows=64):
    """The verdict on outputs, and how often the kernel without a schedule, a function, ran."""
    arguments = [Argument("a", (rows, SUMMED), "float32"), Argument("y", (rows,), "float32")]
    values = np.random.default_rng(0).standard_normal((rows, SUMMED)).astype("float32")
    arrays = [values, np.zeros(rows, "float32")]
    runs = []

    def run(_secs, _function, library, _arguments, inputs, out, _device):
        with np.load(inputs) as content:
            read = np.frombuffer(content["0"], np.float32).reshape(rows, SUMMED)
        is_untuned = Path(library).stem == "untuned"
        runs.extend([library] * is_untuned)
        y = (function if is_untuned else found)(read).astype(np.float32)
        save_arrays(Path(out), {0: read, 1: y})
        return 1e-3, ""

    pool = SimpleNamespace(submit=lambda *_: SimpleNamespace(result=lambda: None))
    limits = [TOLERANCE, TOLERANCE]
    made = Verifier(folder, Target("llvm"), arguments, arrays, limits, pool, run)
    made.expect(kernel(rows, SUMMED))
    return made.check(Path("found.so")), len(runs)


def amplified(order):
    """A sine that turns the rounding of a sum into more than its tolerance."""

    def run(a):
        total = np.zeros(len(a), np.float32)
        for number in range(SUMMED)[::order]:
            total = total + a[:, number]
        return np.sin(64 * total)

    return run


def test_rounding_that_is_amplified_is_no_fault_and_a_lost_term_is(tmp_path):
    right, runs = verdict(tmp_path, amplified(1), amplified(-1))
    assert right.is_right and right.deviation > TOLERANCE and runs > 1
    wrong, _ = verdict(tmp_path, amplified(1), lambda a: amplified(1)(a[:, :] * (a != a[0, 0])))
    assert wrong.is_right is False


def test_a_lost_term_of_a_sum_is_a_fault(tmp_path):
    lost, _ = verdict(tmp_path, lambda a: a.sum(1), lambda a: a[:, 1:].sum(1))
    assert lost.is_right is False
    right, runs = verdict(tmp_path, lambda a: a.sum(1), lambda a: a[:, ::-1].sum(1))
    assert right.is_right and runs == 1


@pytest.mark.parametrize(
    ("value", "words"), [(np.nan, "no finite number in 'y'"), (np.inf, "no"), (0.0, "only 0")]
)
def test_outputs_that_say_nothing_are_not_called_right(value, words, tmp_path):
    def same(a):
        return np.full(len(a), value)

    found, _ = verdict(tmp_path, same, same)
    assert found.is_right is None and words in found.reason and "inputs=" in found.reason
    assert verdict(tmp_path, same, lambda a: a.sum(1))[0].is_right is False


def test_a_part_that_is_not_finite_is_named(tmp_path):
    def same(a):
        return np.where(np.arange(len(a)) < 3, np.nan, a.sum(1))

    found, _ = verdict(tmp_path, same, same)
    assert found.is_right and "3 of the 64 numbers of 'y' are not finite" in found.reason

# SPDX-License-Identifier: Apache-2.0
"""Stop rules, inputs, tolerances and refusals of a kernel's tuning, without any tuning."""

import ml_dtypes
import numpy as np
import pytest

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.script import tirx as T
from tvm_droplet_ms.measure import MACHINERY_FAILURE
from tvm_droplet_ms.measure.deviation import deviation
from tvm_droplet_ms.session.errors import ModelError
from tvm_droplet_ms.session.target import cpu_target
from tvm_droplet_ms.tuning.budget.stop_rules import StopRules
from tvm_droplet_ms.tuning.kernel import KernelError, tune_kernel
from tvm_droplet_ms.tuning.kernel import measuring as kernel_measuring
from tvm_droplet_ms.tuning.kernel.check.arguments import (
    Argument,
    arguments_of,
    random_arrays,
    summed,
    tolerance,
)
from tvm_droplet_ms.tuning.kernel.check.verification import OCCASION_SPREAD, KernelTime
from tvm_droplet_ms.tuning.kernel.faults import nothing_measured


def module(outputs):
    return IRModule({"main": te.create_prim_func(outputs)})


def told(*times):
    """The results of a batch; None for a failure."""
    return [RunnerResult(None if one is None else [one], None) for one in times]


def test_patience_counts_from_the_last_gain():
    rules = StopRules(lambda: "", patience=3)
    rules.tell(0, told(5.0, None, 4.0))
    assert (rules.best_secs, rules.since_gain, rules.reason) == (4.0, 0, "")
    rules.tell(0, told(4.0, None))
    assert rules.reason == ""
    rules.tell(0, told(4.5))
    assert rules.reason == "patience"
    rules.tell(0, told(1.0))
    assert rules.reason == ""


def test_target_and_what_was_known_before():
    rules = StopRules(target_secs=2.0)
    rules.know(0, 3.0)
    rules.tell(0, told(4.0))
    assert (rules.best_secs, rules.since_gain, rules.reason) == (3.0, 1, "")
    rules.tell(0, told(2.0))
    assert rules.reason == "target"
    resumed = StopRules(target_secs=2.0)
    resumed.know(0, 1.0)
    assert resumed.reason == "target"


def test_what_is_due_comes_first():
    rules = StopRules(lambda: "time", target_secs=2.0)
    rules.know(0, 1.0)
    assert rules.reason == "time"


def test_arguments_are_those_of_the_function():
    found = arguments_of(module(te_workload.matmul(8, 16, 32)))
    assert [(one.shape, one.dtype) for one in found] == [
        ((8, 32), "float32"),
        ((32, 16), "float32"),
        ((8, 16), "float32"),
    ]
    assert summed(module(te_workload.matmul(8, 16, 32))) == 32
    # A softmax: the largest of a row, then the sum of a row.
    assert summed(module(te_workload.softmax_mn(8, 64))) == 128


def test_inputs_are_random_unless_given():
    arguments = [
        Argument("x", (64,), "float32"),
        Argument("q", (64,), "int8"),
        Argument("rows", (64,), "int32"),
        Argument("b", (4,), "bfloat16"),
    ]
    x, q, rows, b = random_arrays(arguments, 0, {"rows": np.arange(64)})
    assert 0.5 < x.std() < 1.5
    assert q.min() < -64 and q.max() > 64
    assert rows.tolist() == list(range(64)) and rows.dtype == np.int32
    assert b.dtype == ml_dtypes.bfloat16
    assert set(random_arrays(arguments, 0)[2].tolist()) == {0, 1}
    with pytest.raises(KernelError, match=r"inputs has \['y'\], expected names of \['x'"):
        random_arrays(arguments, 0, {"y": x})
    with pytest.raises(KernelError, match=r"inputs\['x'\] has the shape \(3,\), expected \(64,\)"):
        random_arrays(arguments, 0, {"x": np.zeros(3)})


def test_a_sum_in_another_order_is_within_the_tolerance_and_a_lost_term_is_not():
    generator = np.random.default_rng(0)
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        dtype = np.dtype(dtype)
        terms = generator.standard_normal((256, 64)).astype(dtype)
        forward = backward = np.zeros(64, dtype)
        for number in range(256):
            forward = (forward + terms[number]).astype(dtype)
            backward = (backward + terms[255 - number]).astype(dtype)
        allowed = tolerance(dtype, 256)
        assert 0.0 < deviation(backward, forward) < allowed
    # In single precision a lost term is seen.
    lost = terms.astype(np.float32)
    assert deviation(lost[1:].sum(0), lost.sum(0)) > 10 * tolerance(np.dtype(np.float32), 256)
    assert tolerance(np.dtype(np.int32), 256) == 0.0


@pytest.mark.parametrize("spread", [0.02, 0.05, 0.1])
def test_interval_holds_nine_of_ten_processes_of_another_occasion(spread):
    generator = np.random.default_rng(0)
    held = 0
    for _ in range(2000):
        logs = spread * generator.standard_normal(8)
        logs[7] += OCCASION_SPREAD * generator.standard_normal()
        times = 1e-3 * np.exp(logs)
        time = KernelTime.of(times[:7].tolist())
        assert time.low <= time.secs <= time.high
        held += time.low <= times[7] <= time.high
    assert 0.88 <= held / 2000 <= 0.95


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": -1}, "trials is -1, expected an integer of at least 0"),
        ({"threads": 0}, "threads is 0, expected an integer of at least 1"),
        ({"threads": 1 << 20}, "threads=1048576: expected an int from 1 to"),
        ({"trials": "8"}, "trials is '8', expected an integer"),
        ({"trials": 2.5}, "trials is 2.5, expected an integer"),
        ({"time_budget_s": "x"}, "time_budget_s is 'x', expected None or a positive number"),
        ({"seed": "a"}, "seed is 'a', expected an integer"),
        ({"inputs": 5}, "inputs is 5, expected arrays by the names"),
        ({"strategy": "foo"}, "strategy is 'foo', expected None or a SearchStrategy"),
        ({"work_dir": 5}, "work_dir is 5: expected a directory"),
        ({"work_dir": ""}, "work_dir is '': expected a directory"),
        ({"patience": 0}, "patience is 0, expected None or an integer of at least 1"),
        ({"time_budget_s": 0.0}, "time_budget_s is 0.0, expected None or a positive number"),
        ({"target_latency_us": float("nan")}, "target_latency_us is nan, expected None or"),
        ({"target": "cuda"}, "target"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_made(options, message, tmp_path):
    with pytest.raises(KernelError, match=message):
        tune_kernel(module(te_workload.matmul(8, 8, 8)), **{"work_dir": tmp_path / "w", **options})
    assert not (tmp_path / "w").exists()


def test_a_module_of_several_functions_is_refused():
    func = te.create_prim_func(te_workload.matmul(8, 8, 8))
    with pytest.raises(KernelError, match="IRModule with 2 functions: expected a PrimFunc"):
        tune_kernel(IRModule({"a": func, "b": func}))
    with pytest.raises(KernelError, match="mod is int with 0 functions"):
        tune_kernel(3)


@T.prim_func(s_tir=True)
def without_blocks(a: T.handle, b: T.handle) -> None:
    A = T.match_buffer(a, (8,), "float32")
    B = T.match_buffer(b, (8,), "float32")
    for i in range(8):
        B[i] = A[i]


def rows(extent, reduced=None):
    a = te.placeholder((extent, 10), "float32", name="a")
    if reduced is None:
        return te.create_prim_func([a, te.compute((extent, 10), lambda i, j: a[i, j], name="c")])
    k = te.reduce_axis((0, reduced), "k")
    total = te.compute((extent,), lambda i: te.sum(a[i, k], k), name="c")
    return te.create_prim_func([a, total])


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (rows(0), r"argument 'a' has the shape \[0, 10\]: expected extents of at least 1"),
        (rows(-1), r"argument 'a' has the shape \[-1, 10\]: expected extents of at least 1"),
        (rows(4, 0), "the kernel has a loop with an extent of 0: there is nothing to compute"),
        (without_blocks, "the kernel has no blocks, .* there is nothing to schedule"),
    ],
)
def test_what_has_nothing_to_tune_is_refused(func, words, tmp_path):
    with pytest.raises(KernelError, match=words):
        tune_kernel(func, trials=2, work_dir=tmp_path / "logs", progress=None)
    assert not (tmp_path / "logs").exists()


FOREIGN = {"kind": "llvm", "mtriple": "aarch64-linux-gnu"}
UNKNOWN = {"kind": "llvm", "mcpu": "no-such-cpu"}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (FOREIGN, "expected the same architecture. ms.tune_tir with .*FleetRunner and "),
        (UNKNOWN, "has the mcpu 'no-such-cpu', which LLVM does not know for "),
    ],
)
def test_a_target_that_cannot_be_built_for_is_refused(target, words, tmp_path, monkeypatch):
    """The linker refused it, once for each trial, and an unknown CPU got code for any CPU."""
    if cpu_target("llvm", 1).attrs["mtriple"].startswith("aarch64"):
        target = target | ({"mtriple": "x86_64-linux-gnu"} if "mtriple" in target else {})
    monkeypatch.setattr(kernel_measuring, "fast_measure", lambda *_, **__: pytest.fail("it builds"))
    with pytest.raises(KernelError, match=words):
        tune_kernel(rows(4), target=target, trials=2, work_dir=tmp_path / "logs")
    assert not (tmp_path / "logs").exists()
    with pytest.raises(ModelError, match=words):
        cpu_target(target, 1)


def test_crashes_on_made_up_values_name_the_remedy(tmp_path):
    def words(*reasons):
        failures = dict.fromkeys(reasons, 1)
        error = nothing_measured("k", ["a", "rows"], "llvm", tmp_path, 0, failures, "")
        return str(error)

    crash = "PromptRunner: its process was ended by SIGSEGV"
    remedy = "inputs={name: array}, or --inputs FILE.npz, by the names a, rows"
    assert remedy in words(crash)
    assert remedy not in words(crash, "LLVM: no such intrinsic")


@T.prim_func(s_tir=True)
def sparse_rows(
    starts: T.Buffer((5,), "int32"),
    data: T.Buffer((12,), "float32"),
    out: T.Buffer((4,), "float32"),
):
    for i in T.serial(4):
        with T.sblock("rows"):
            row = T.axis.spatial(4, i)
            out[row] = 0.0
            for k in T.serial(starts[row + 1] - starts[row]):
                with T.sblock("sum"):
                    place = T.axis.reduce(starts[row + 1] - starts[row], k)
                    out[row] = out[row] + data[starts[row] + place]


def test_a_sum_whose_extent_is_in_the_data_is_refused(tmp_path):
    with pytest.raises(KernelError, match="an extent that it reads from 'starts'"):
        tune_kernel(sparse_rows, trials=2, work_dir=tmp_path / "logs", progress=None)
    assert summed(IRModule({"main": sparse_rows})) == 1


def test_what_the_machine_failed_to_measure_spends_no_patience():
    rules = StopRules(lambda: "", patience=2)
    unmeasured = [RunnerResult([], "no room"), RunnerResult(None, f"{MACHINERY_FAILURE}no room")]
    rules.tell(0, unmeasured)
    assert (rules.since_gain, rules.reason) == (0, "")
    rules.tell(0, [RunnerResult(None, "it crashed"), *unmeasured])
    assert rules.since_gain == 1

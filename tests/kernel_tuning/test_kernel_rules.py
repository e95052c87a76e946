# SPDX-License-Identifier: Apache-2.0
"""Stop rules, inputs and tolerances of a kernel's tuning, without any tuning."""

import json

import ml_dtypes
import numpy as np
import pytest

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms.deviation import deviation
from tvm_droplet_ms.kernel_tuning import KernelError, tune_kernel
from tvm_droplet_ms.kernel_tuning.check.arguments import (
    Argument,
    arguments_of,
    random_arrays,
    summed,
    tolerance,
)
from tvm_droplet_ms.kernel_tuning.check.verification import OCCASION_SPREAD, KernelTime
from tvm_droplet_ms.kernel_tuning.records import RECORDS, correct_times
from tvm_droplet_ms.kernel_tuning.stop_rules import StopRules


def module(outputs):
    return IRModule({"main": te.create_prim_func(outputs)})


def test_patience_counts_from_the_last_gain():
    rules = StopRules(lambda: "", patience=3)
    rules.tell([5.0, None, 4.0])
    assert (rules.best_secs, rules.since_gain, rules.reason) == (4.0, 0, "")
    rules.tell([4.0, None])
    assert rules.reason == ""
    rules.tell([4.5])
    assert rules.reason == "patience"
    rules.tell([1.0])
    assert rules.reason == ""


def test_target_and_what_was_known_before():
    rules = StopRules(lambda: "", target_secs=2.0, best_secs=3.0)
    rules.tell([4.0])
    assert (rules.best_secs, rules.since_gain, rules.reason) == (3.0, 1, "")
    rules.tell([2.0])
    assert rules.reason == "target"
    assert StopRules(lambda: "", target_secs=2.0, best_secs=1.0).reason == "target"


def test_what_is_due_comes_first():
    assert StopRules(lambda: "time", target_secs=2.0, best_secs=1.0).reason == "time"


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


def test_only_named_records_get_other_times(tmp_path):
    rows = [[0, [["trace"], [float(n)], {"kind": "llvm"}, []]] for n in range(3)]
    (tmp_path / RECORDS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    correct_times(tmp_path, {1: [9.0], 2: [1e10]})
    found = [json.loads(line) for line in (tmp_path / RECORDS).read_text().splitlines()]
    assert [row[1][1] for row in found] == [[0.0], [9.0], [1e10]]
    for row, before in zip(found, rows, strict=True):
        row[1][1] = before[1][1]
    assert found == rows
    assert [path.name for path in tmp_path.iterdir()] == [RECORDS]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trials": -1}, "trials is -1, expected an integer of at least 0"),
        ({"threads": 0}, "threads is 0, expected an integer of at least 1"),
        ({"patience": 0}, "patience is 0, expected None or an integer of at least 1"),
        ({"time_budget_s": 0.0}, "time_budget_s is 0.0, expected None or a positive number"),
        ({"target_latency_us": float("nan")}, "target_latency_us is nan, expected None or"),
        ({"target": "cuda"}, "target"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_made(options, message, tmp_path):
    with pytest.raises(KernelError, match=message):
        tune_kernel(module(te_workload.matmul(8, 8, 8)), work_dir=tmp_path / "w", **options)
    assert not (tmp_path / "w").exists()


def test_a_module_of_several_functions_is_refused():
    func = te.create_prim_func(te_workload.matmul(8, 8, 8))
    with pytest.raises(KernelError, match="IRModule with 2 functions: expected a PrimFunc"):
        tune_kernel(IRModule({"a": func, "b": func}))
    with pytest.raises(KernelError, match="mod is int with 0 functions"):
        tune_kernel(3)

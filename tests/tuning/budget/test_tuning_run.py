# SPDX-License-Identifier: Apache-2.0
"""Kernels that TVM's rules fail for are left out, and the others are tuned."""

from types import SimpleNamespace

import pytest

from tvm import te, tirx, topi
from tvm.ir import IRModule
from tvm.target import Target
from tvm_droplet_ms import tune_kernel
from tvm_droplet_ms.tuning.budget.tuning_run import with_design_space

TARGET = Target({"kind": "llvm", "num-cores": 4})


def centered_twice():
    """Without the means of its rows, and then of its columns: ``reverse_compute_at`` fails."""
    x = te.placeholder((33, 100), "float32", "x")
    turned = topi.transpose(x, [1, 0])
    for axis, count in ((0, 100), (1, 33)):
        mean = topi.divide(topi.sum(turned, axis, True), tirx.const(count, "float32"))
        turned = topi.subtract(turned, mean)
    return te.create_prim_func([x, topi.add(turned, tirx.const(1.0, "float32"))])


def summed():
    x = te.placeholder((33, 100), "float32", "x")
    return te.create_prim_func([x, topi.sum(x, 1)])


def test_a_kernel_that_the_rules_fail_for_is_named():
    tasks = [
        SimpleNamespace(task_name=name, dispatched=[IRModule({"main": kernel})], target=TARGET)
        for name, kernel in (("good", summed()), ("bad", centered_twice()))
    ]
    kept, names = with_design_space(tasks)
    assert kept == tasks[:1] and names == ["bad"]


def test_alone_it_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="has no design space: TVM's rules fail for it") as caught:
        tune_kernel(centered_twice(), target=TARGET, trials=2, work_dir=tmp_path, progress=None)
    assert "\n" not in str(caught.value)

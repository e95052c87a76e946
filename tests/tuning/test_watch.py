# SPDX-License-Identifier: Apache-2.0
"""The patience of a model's run, and the values of its inputs, worked by hand."""

import math

import numpy as np

import tvm
from tvm import relax
from tvm_droplet_ms.display import RunState, TaskState
from tvm_droplet_ms.tuning.check.output_check import make_check
from tvm_droplet_ms.tuning.frontends.imported import ImportedModel, InputSpec, Reference
from tvm_droplet_ms.tuning.watch import Patience, Watch


def test_patience_counts_trials_of_all_kernels_since_the_last_gain():
    a, b = TaskState("a"), TaskState("b")
    run = RunState([a, b])
    patience = Patience(5)
    for task, times in ((a, [3.0, 4.0]), (b, [None, None]), (b, [9.0, None])):
        task.tell(times)
        patience.batch(run, task)
    # The gain of b was its third of four trials: one of six came after it.
    assert not patience.is_spent
    a.tell([3.0, 3.5, 5.0])
    patience.batch(run, a)
    assert not patience.is_spent
    a.tell([3.0])
    patience.batch(run, a)
    assert patience.is_spent
    a.tell([2.0])
    patience.batch(run, a)
    assert not patience.is_spent


def test_what_earlier_runs_knew_is_no_gain():
    task = TaskState("a", known=10, best_secs=2.0)
    patience = Patience(3)
    task.tell([3.0, 2.5, 2.0])
    patience.batch(RunState([task]), task)
    assert patience.is_spent


def test_the_watch_knows_earlier_runs(tmp_path):
    watch = Watch(tmp_path)
    watch.know("a", 10, 2.0)
    watch.know("a", 99, 1.0)  # Asked again within a run: what was told first stays.
    (task,) = watch.tasks
    assert (task.name, task.known, task.done, task.best_secs) == ("a", 10, 10, 2.0)


def test_without_patience_it_is_never_spent():
    task = TaskState("a", best_secs=math.inf)
    patience = Patience(None)
    task.tell([None] * 1000)
    patience.batch(RunState([task]), task)
    assert not patience.is_spent


class Sum:
    """A reference that adds its inputs."""

    def __call__(self, arrays):
        return [sum(array.astype("float64") for array in arrays)]


def test_given_inputs_are_in_every_set():
    specs = (InputSpec("x", (2,), "float32"), InputSpec("rows", (2,), "int64"))
    inputs = [relax.Var(spec.name, relax.TensorType(spec.shape, spec.dtype)) for spec in specs]
    function = relax.Function(inputs, inputs[0])
    mod = tvm.IRModule({"main": function})
    imported = ImportedModel(mod, specs, Reference("the sum", Sum()))
    check = make_check(imported, None, 1e-4, 0, {"rows": np.array([7, 9])})
    assert len(check.inputs) > 1
    for (x, rows), (expected,) in zip(check.inputs, check.expected, strict=True):
        np.testing.assert_array_equal(rows, [7, 9])
        assert rows.dtype == np.int64
        np.testing.assert_allclose(expected, x.astype("float64") + np.array([7, 9]))
    assert len({x.tobytes() for x, _ in check.inputs}) == len(check.inputs)

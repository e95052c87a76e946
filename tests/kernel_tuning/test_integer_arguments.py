# SPDX-License-Identifier: Apache-2.0
"""Kernels of indices and divisors: made-up values must not crash them, given ones are measured."""

import numpy as np
import pytest
from made_up_measuring import quick_tune

import tvm
from tvm import te, topi
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm_droplet_ms.tuning.kernel import measuring as kernel_measuring
from tvm_droplet_ms.tuning.kernel.check import verification
from tvm_droplet_ms.tuning.kernel.check.arguments import (
    IntegerRole,
    arguments_of,
    integer_roles,
    measured_values,
    random_arrays,
)
from tvm_droplet_ms.tuning.kernel.kernel_run import module_of

TABLE = te.placeholder((13, 17), "float32", name="table")
ROWS = te.placeholder((13, 5), "int64", name="rows")
ONE = te.placeholder((4,), "int64", name="one")
TWO = te.placeholder((4,), "int64", name="two")
IMAGE = te.placeholder((7, 5, 3), "float32", name="image")
LENGTHS = te.placeholder((5,), "int32", name="lengths")


def kernel(*tensors):
    return module_of(te.create_prim_func(list(tensors)))


@pytest.mark.parametrize(
    ("mod", "roles"),
    [
        (kernel(TABLE, ROWS, topi.gather(TABLE, 1, ROWS)), {"rows": IntegerRole(0, 17)}),
        (kernel(TABLE, ROWS, topi.gather(TABLE, 0, ROWS)), {"rows": IntegerRole(0, 13)}),
        # Computed indices: nothing is known but that 0 is an index.
        (kernel(TABLE, ONE, topi.take(TABLE, ONE, 0, mode="clip")), {"one": IntegerRole(0, 1)}),
        (
            kernel(IMAGE, LENGTHS, topi.reverse_sequence(IMAGE, LENGTHS, 0, 1)),
            {"lengths": IntegerRole(0, 1)},
        ),
        (kernel(ONE, TWO, topi.add(ONE, TWO)), {"one": IntegerRole(), "two": IntegerRole()}),
        (
            kernel(ONE, TWO, topi.floor_divide(ONE, TWO)),
            {"one": IntegerRole(), "two": IntegerRole(1)},
        ),
    ],
)
def test_what_integers_are_for(mod, roles):
    found = integer_roles(mod)
    assert {name: found[name] for name in roles} == roles


def test_made_up_integers_are_indices_of_their_axis():
    mod = kernel(TABLE, ROWS, topi.gather(TABLE, 1, ROWS))
    arguments, roles = arguments_of(mod), integer_roles(mod)
    arrays = random_arrays(arguments, 0, None, roles)
    assert set(arrays[1].ravel().tolist()) > {0, 16} and arrays[1].max() < 17
    assert list(measured_values(arguments, arrays, None, roles)) == [1]
    assert list(measured_values(arguments, arrays, {"table": arrays[0]}, roles)) == [0, 1]


def test_a_gather_is_measured_without_crashes(tmp_path, monkeypatch):
    """TVM fills integers with any number: each candidate ended by SIGSEGV."""
    monkeypatch.setattr(verification, "ROUNDS", 1)
    mod = kernel(TABLE, ROWS, topi.gather(TABLE, 1, ROWS))
    result = quick_tune(mod, tmp_path, trials=2)
    assert result.verified and result.trials and not result.failures
    table = np.arange(13 * 17, dtype="float32").reshape(13, 17)
    rows = np.random.default_rng(0).integers(0, 17, (13, 5))
    found = result(table, rows, np.zeros((13, 5), "float32"))[2]
    np.testing.assert_array_equal(found, np.take_along_axis(table, rows, 1))


def test_given_values_reach_the_measuring(tmp_path, measuring, monkeypatch):
    """Also those that are no indices."""
    allocated, stub = [], kernel_measuring.fast_measure

    def measure(target, *, f_alloc_argument, **options):
        described = [info.as_json() for info in ArgInfo.from_entry_func(mod, remove_preproc=True)]
        allocated.extend(f_alloc_argument(tvm.cpu(), described, 1)[0])
        return stub(target, **options)

    monkeypatch.setattr(kernel_measuring, "fast_measure", measure)
    mod = kernel(TABLE, ROWS, topi.gather(TABLE, 1, ROWS))
    table = np.arange(13 * 17, dtype="float32").reshape(13, 17)
    quick_tune(mod, tmp_path, inputs={"rows": np.full((13, 5), 16), "table": table})
    np.testing.assert_array_equal(allocated[0].numpy(), table)
    assert (allocated[1].numpy() == 16).all()
    assert allocated[2].shape == (13, 5)

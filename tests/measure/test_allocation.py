# SPDX-License-Identifier: Apache-2.0
"""The arguments that candidates are timed on."""

import ml_dtypes
import numpy as np
import pytest

import tvm
from tvm_droplet_ms.measure.allocation import GivenArguments, allocate_safely
from tvm_droplet_ms.tuning import cold_timing


def info(dtype, *shape):
    return ["TENSOR", dtype, list(shape)]


@pytest.mark.parametrize("allocate", [allocate_safely, cold_timing.allocate_or_keep])
def test_integers_are_an_index_of_every_axis_and_others_are_random(allocate, monkeypatch):
    monkeypatch.setattr(cold_timing, "KEPT_BYTES", 400)
    kinds = ["int64", "int32", "uint8", "bool", "int8"]
    described = [info("float32", 50), *(info(kind, 200) for kind in kinds), info("bfloat16", 50)]
    for floats, *integers, halves in allocate(tvm.cpu(), described, 2):
        assert [str(one.dtype) for one in integers] == kinds
        assert not any(one.numpy().any() for one in integers)
        assert floats.numpy().std() > 0 and halves.numpy().astype("float32").std() > 0


def test_given_values_are_in_their_places(tmp_path):
    rows, half = np.arange(6).reshape(2, 3), np.full(4, 1.5, ml_dtypes.bfloat16)
    given = GivenArguments(tmp_path / "values.npz", {1: rows, 2: half})
    described = [info("float32", 5), info("int64", 2, 3), info("bfloat16", 4)]
    for _, found, halves in given(tvm.cpu(), described, 2):
        np.testing.assert_array_equal(found.numpy(), rows)
        np.testing.assert_array_equal(halves.numpy(), half)
    # A schedule that lays an argument out anew: it is filled as others are.
    ((_, found, _),) = given(tvm.cpu(), [described[0], info("int64", 3, 2), described[2]], 1)
    assert found.numpy().tolist() == [[0, 0]] * 3

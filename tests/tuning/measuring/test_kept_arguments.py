# SPDX-License-Identifier: Apache-2.0
"""Large arguments are kept from candidate to candidate."""

import numpy as np
import pytest

import tvm
from tvm_droplet_ms.tuning.measuring import kept_arguments
from tvm_droplet_ms.tuning.measuring.kept_arguments import allocate_or_keep, bytes_of


@pytest.fixture(autouse=True)
def _few_bytes(monkeypatch):
    monkeypatch.setattr(kept_arguments, "KEPT_BYTES", 400)
    monkeypatch.setattr(kept_arguments, "_kept", {})


def tensor(*shape, dtype="float32"):
    return ["TENSOR", dtype, list(shape)]


def places(sets):
    return [[np.from_dlpack(argument).ctypes.data for argument in each] for each in sets]


def test_large_ones_are_kept_and_small_ones_are_new():
    info = [tensor(3), tensor(10, 10), tensor(2, dtype="int8")]
    first = allocate_or_keep(tvm.cpu(), info, 2)
    again = allocate_or_keep(tvm.cpu(), info, 1)
    assert [[tuple(argument.shape) for argument in each] for each in first + again] == 3 * [
        [(3,), (10, 10), (2,)]
    ]
    assert [str(argument.dtype) for argument in again[0]] == ["float32", "float32", "int8"]
    small, large, bytes_ = zip(*places(first + again), strict=True)
    assert len(set(large)) == 1 and len(set(small)) == len(set(bytes_)) == 3
    values = again[0][1].numpy()
    assert np.isfinite(values).all() and values.std() > 0


def test_two_arguments_of_one_shape_are_two():
    ((first, second),) = places(allocate_or_keep(tvm.cpu(), 2 * [tensor(10, 10)], 1))
    assert first != second


def test_those_of_another_kernel_are_given_back():
    allocate_or_keep(tvm.cpu(), [tensor(10, 10), tensor(100)], 1)
    allocate_or_keep(tvm.cpu(), [tensor(10, 10)], 1)
    assert list(kept_arguments._kept) == [(0, "float32", (10, 10))]
    allocate_or_keep(tvm.cpu(), [tensor(9, 10)], 1)
    assert not kept_arguments._kept


def test_bytes_of_a_tensor():
    assert bytes_of(tvm.runtime.empty((3, 5), "int16")) == 30
    assert bytes_of("no tensor") == 0

# SPDX-License-Identifier: Apache-2.0
"""The exponentials of an attention, against NumPy in double precision."""

import numpy as np
import pytest

import tvm
from tvm import te
from tvm_droplet_ms.model.kernels.attention.attention_packing import Extents, InPairs, Packing

ONE = Extents(batch=(1,), rows=1, columns=16, depth=16, width=16)


def exponentials(packing, x):
    data = te.placeholder(x.shape, name="data")
    kernel = te.create_prim_func([data, packing.exponentials(data)])
    library = tvm.compile(tvm.IRModule({"main": kernel}), target="llvm")
    out = tvm.runtime.empty(x.shape, "float32")
    library["main"](tvm.runtime.tensor(x), out)
    return out.numpy()


@pytest.mark.parametrize(("make", "bound"), [(Packing, 1.2e-6), (InPairs, 8e-5)])
def test_they_are_within_what_is_stored(make, bound):
    x = -np.linspace(0, 20, 100001).astype("float32")
    expected = np.exp(x.astype("float64"))
    assert np.abs(exponentials(make(ONE), x) / expected - 1).max() < bound


@pytest.mark.parametrize("make", [Packing, InPairs])
def test_small_powers_vanish_and_the_largest_is_one(make):
    x = np.array([0.0, -87.0, -100.0, -1e9, -np.inf], "float32")
    found = exponentials(make(ONE), x)
    assert found[0] == pytest.approx(1, abs=8e-5)
    assert found[1] == pytest.approx(np.exp(-87.0), rel=8e-5)
    np.testing.assert_array_equal(found[2:], 0)


@pytest.mark.parametrize("make", [Packing, InPairs])
def test_a_nan_stays_one(make):
    assert np.isnan(exponentials(make(ONE), np.array([np.nan], "float32"))).all()

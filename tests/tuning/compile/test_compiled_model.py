# SPDX-License-Identifier: Apache-2.0
"""What a compiled model gives back: arrays of the types and shapes that it was given."""

import ml_dtypes
import numpy as np
import pytest

import tvm
from tvm import relax
from tvm_droplet_ms.tuning.compile.compiled_model import CompiledModel


def identity(shape, dtype):
    """A model that returns its input, and that in a tuple."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, dtype))
    with builder.function("main", [x]):
        builder.emit_func_output(relax.Tuple([x, relax.Tuple([x])]))
    return CompiledModel(tvm.compile(builder.get(), "llvm"))


KINDS = ["bool", "int8", "uint16", "int64", "float16", "float32", "float64", ml_dtypes.bfloat16]


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_all_types_come_back_as_copies(kind):
    given = (np.random.default_rng(0).random((4, 6)) * 9).astype(kind)
    model = identity((4, 6), np.dtype(kind).name)
    for array in (given, np.asarray(np.asfortranarray(given)), given[::-1]):
        expected = array.copy()
        array.flags.writeable = False
        first, second = model([array])
        for found in (first, second):
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, expected)
        first[:] = 0
        np.testing.assert_array_equal(second, expected)
        np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("shape", [(), (0, 3), (1,)])
def test_arrays_of_few_elements(shape):
    (found, _) = identity(shape, "float32")([np.full(shape, 3, "float32")])
    assert found.shape == shape and (found == 3).all()

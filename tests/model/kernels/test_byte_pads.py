# SPDX-License-Identifier: Apache-2.0
"""The padding of bytes, beside NumPy's."""

import numpy as np
import pytest

import tvm
from tvm import relax
from tvm_droplet_ms.model.kernels.copies import legalize_pad


def pads(data, widths, value, mode="constant"):
    """The kernels of a pad, and its result."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(data.shape, str(data.dtype)))
    with builder.function("main", [x]):
        flat = [width for pair in widths for width in pair]
        builder.emit_func_output(builder.emit(relax.op.nn.pad(x, flat, mode, value)))
    mod = relax.transform.LegalizeOps({"relax.nn.pad": legalize_pad})(builder.get())
    kernels = [name.name_hint for name, one in mod.functions_items() if name.name_hint != "main"]
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    return kernels, machine["main"](tvm.runtime.tensor(data)).numpy()


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    "shape, widths",
    [
        ((2, 3, 5, 7), [(0, 0), (0, 1), (2, 1), (3, 0)]),
        ((4, 6), [(0, 0), (1, 2)]),
        ((9,), [(2, 3)]),
        ((1, 1), [(0, 0), (0, 0)]),
    ],
)
def test_bytes_are_copied_into_the_padding(shape, widths, dtype):
    low, high = (0, 256) if dtype == "uint8" else (-128, 128)
    data = np.random.default_rng(0).integers(low, high, shape).astype(dtype)
    kernels, found = pads(data, widths, 114)
    assert kernels == ["pad_bytes"]
    np.testing.assert_array_equal(found, np.pad(data, widths, constant_values=114))


def test_other_padding_is_left_to_tvm():
    data = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    kernels, found = pads(data, [(1, 0), (2, 2)], 1.5)
    assert kernels == ["pad"]
    np.testing.assert_array_equal(found, np.pad(data, [(1, 0), (2, 2)], constant_values=1.5))
    many = np.arange(64, dtype=np.uint8).reshape(8, 8)
    kernels, found = pads(many, [(-3, 1), (2, -4)], 7)
    assert kernels != ["pad_bytes"]
    expected = np.pad(many[3:, :4], [(0, 1), (2, 0)], constant_values=7)
    np.testing.assert_array_equal(found, expected)
    small = np.arange(6, dtype=np.uint8).reshape(2, 3)
    kernels, found = pads(small, [(1, 0), (1, 1)], 0, "reflect")
    assert kernels != ["pad_bytes"]
    np.testing.assert_array_equal(found, np.pad(small, [(1, 0), (1, 1)], "reflect"))

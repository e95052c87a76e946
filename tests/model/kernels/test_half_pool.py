# SPDX-License-Identifier: Apache-2.0
"""Largest values of windows of bfloat16 are NumPy's."""

import ml_dtypes
import numpy as np
import pytest

import tvm
from tvm import te
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.model.kernels.halves import half_max_pool
from tvm_droplet_ms.tuning.kernel.kernel_run import module_of

HALF = ml_dtypes.bfloat16


def pooled(data, size, stride, pads):
    a = te.placeholder(data.shape, "bfloat16", "a")
    geometry = {"kernel": [size] * 2, "stride": [stride] * 2, "dilation": [1, 1], "padding": pads}
    function = te.create_prim_func(
        [a, half_max_pool(a, **geometry, ceil_mode=False, layout="NHWC")]
    )
    module = module_of(function)
    shape = [int(extent) for extent in module["main"].params[-1].shape]
    out = tvm.runtime.empty(shape, "bfloat16")
    tvm.tirx.build(module, target=host_target())["main"](tvm.runtime.tensor(data), out)
    return out.numpy().astype("float32")


@pytest.mark.parametrize(
    ("size", "stride", "pads"), [(3, 2, [1, 1, 1, 1]), (2, 2, [0, 0, 0, 0]), (3, 1, [1, 0, 1, 0])]
)
def test_windows(size, stride, pads):
    """Numbers of all magnitudes and signs, infinities and zeros; padding is less than all."""
    generator = np.random.default_rng(0)
    bits = generator.integers(0, 1 << 16, (1, 9, 9, 40)).astype("uint16")
    bits[(bits & 0x7F80) == 0x7F80] &= 0xFF80  # Infinities, and no NaN.
    data = bits.view(HALF)
    data[0, :, :, 0], data[0, :, :, 1] = -np.inf, np.array(-0.0, HALF)
    top, left, bottom, right = pads
    wide = np.pad(
        data.astype("float32"),
        ((0, 0), (top, bottom), (left, right), (0, 0)),
        constant_values=-np.inf,
    )
    lines, rows = ((wide.shape[n] - size) // stride + 1 for n in (1, 2))
    expected = np.stack(
        [
            [
                wide[:, y * stride : y * stride + size, x * stride : x * stride + size].max((1, 2))
                for x in range(rows)
            ]
            for y in range(lines)
        ]
    )
    np.testing.assert_array_equal(pooled(data, size, stride, pads), expected.transpose(2, 0, 1, 3))


def test_padding_alone_is_minus_infinity():
    data = np.ones((1, 2, 2, 16), HALF)
    found = pooled(data, 1, 2, [2, 2, 0, 0])
    assert found[0, 0, 0, 0] == -np.inf and found[0, -1, -1, 0] == 1.0

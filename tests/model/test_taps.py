# SPDX-License-Identifier: Apache-2.0
"""Kernels of convolutions without what reads padding alone."""

import numpy as np
import pytest
from graphs import Values, apply, assert_same, build, calls

from tvm import relax
from tvm_droplet_ms.model.folding.taps import drop_taps, read_taps

op = relax.op


def sizes(mod):
    """The extents of the kernels, and the paddings, of the convolutions of ``main``."""
    found = []
    for call in calls(mod, "nn.conv2d"):
        kernel = str(call.attrs.kernel_layout)
        shape = [int(extent) for extent in call.args[1].ty.shape]
        extents = [shape[kernel.index(letter)] for letter in "HW"]
        found.append((extents, [int(width) for width in call.attrs.padding]))
    return found


@pytest.mark.parametrize(
    ("options", "kernel", "padding"),
    [
        ({"dilation": 24, "padding": 24}, [1, 1], [0, 0, 0, 0]),
        ({"dilation": (24, 12), "padding": (24, 12)}, [1, 3], [0, 12, 0, 12]),
        ({"dilation": 12, "padding": 12}, [3, 3], [12, 12, 12, 12]),
        # The first row reads zeros, and the second the first pixels, for the last output.
        ({"dilation": 15, "padding": (30, 15, 0, 15)}, [2, 3], [15, 15, 0, 15]),
        ({"dilation": 24, "padding": 24, "strides": 2}, [1, 1], [0, 0, 0, 0]),
        ({"dilation": 24, "padding": 24, "groups": 4}, [1, 1], [0, 0, 0, 0]),
    ],
)
def test_rows_and_columns_that_read_padding_alone_go(options, kernel, padding):
    values = Values()
    inputs = 4 // options.get("groups", 1)
    before = build(
        (1, 4, 16, 16),
        lambda emit, x: emit(op.nn.conv2d(x, values.normal(8, inputs, 3, 3), **options)),
    )
    after = apply(drop_taps(), before)
    assert sizes(after) == [(kernel, padding)]
    assert_same(before, after)


def test_other_layouts_and_kernels_that_are_no_constant():
    values = Values()
    layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO", "padding": 24, "dilation": 24}

    def last(emit, x):
        return emit(op.nn.conv2d(x, values.normal(3, 3, 4, 8), **layouts))

    before = build((1, 16, 16, 4), last)
    after = apply(drop_taps(), before)
    assert sizes(after) == [([1, 1], [0, 0, 0, 0])]
    assert_same(before, after)

    def unknown(emit, x):
        kernel = emit(op.nn.relu(values.normal(8, 4, 3, 3)))
        return emit(op.nn.conv2d(x, kernel, padding=24, dilation=24))

    before = build((1, 4, 16, 16), unknown)
    assert sizes(apply(drop_taps(), before)) == [([3, 3], [24, 24, 24, 24])]


def test_taps_that_are_read_by_brute_force():
    random = np.random.default_rng(0)
    for _ in range(300):
        extent, size, stride, dilation, before, after = (int(n) for n in random.integers(1, 9, 6))
        outputs = (extent + before + after - dilation * (size - 1) - 1) // stride + 1
        if outputs < 1:
            continue
        padded = [0] * before + [1] * extent + [0] * after
        read = [
            tap
            for tap in range(size)
            if any(padded[y * stride + tap * dilation] for y in range(outputs))
        ]
        found = list(read_taps(extent, outputs, size, stride, dilation, before))
        assert found == (list(range(read[0], read[-1] + 1)) if read else [])

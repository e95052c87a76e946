# SPDX-License-Identifier: Apache-2.0
"""Convolutions as sums over the elements of their kernels: compared with the definition."""

import pytest
from graphs import Values, apply, assert_same, build, calls

from tvm import relax
from tvm_droplet_ms.model.folding import taps as tap_sums
from tvm_droplet_ms.model.folding.taps import read_outputs, split_taps

op = relax.op
LAYOUT = {"data_layout": "NHWC", "kernel_layout": "HWIO"}


@pytest.mark.parametrize("extent", [1, 3, 8])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("offset", [-9, -8, -4, -1, 0, 2, 7, 9])
def test_outputs_that_read_the_image_by_brute_force(extent, stride, offset):
    outputs = 6
    expected = [y for y in range(outputs) if 0 <= y * stride + offset < extent]
    assert list(read_outputs(extent, outputs, stride, offset)) == expected


@pytest.mark.parametrize(
    ("options", "sums"),
    [
        ({"padding": 6, "dilation": 6}, 9),  # an outer element reads 2 of 8 rows and 3 of 9 columns
        ({"padding": (6, 1, 6, 1), "dilation": (6, 1)}, 3),  # rows alone
        ({"padding": (7, 5, 5, 6), "dilation": (6, 5), "strides": (1, 2)}, 9),
        ({"padding": 6, "dilation": 6, "strides": 2}, 9),
        ({"padding": 1}, 1),
    ],
)
def test_sums_over_elements_are_the_convolution(options, sums, monkeypatch):
    monkeypatch.setattr(tap_sums, "LEAST_SAVED", 0)
    values = Values()

    def body(emit, x):
        y = emit(op.nn.conv2d(x, values.normal(3, 3, 4, 8), **options, **LAYOUT))
        return emit(op.nn.relu(y))

    before = build((2, 8, 9, 4), body)
    after = apply(split_taps(), before)
    assert len(calls(after, "nn.conv2d")) == sums
    assert_same(before, after)


@pytest.mark.parametrize(("rank", "sums"), [(1, 3), (3, 9)])
def test_lines_and_volumes_are_split_too(rank, sums, monkeypatch):
    monkeypatch.setattr(tap_sums, "LEAST_SAVED", 0)
    values, axes = Values(), "DHW"[3 - rank :]
    convolve = {1: op.nn.conv1d, 3: op.nn.conv3d}[rank]
    layouts = {"data_layout": f"N{axes}C", "kernel_layout": f"{axes}IO"}
    # Of volumes the depth is not dilated, and is not split.
    dilation = (1, 5, 5)[:rank] if rank == 3 else (5,)

    def body(emit, x):
        weights = values.normal(*[3] * rank, 4, 8)
        return emit(convolve(x, weights, padding=dilation, dilation=dilation, **layouts))

    before = build((1, *[7] * rank, 4), body)
    after = apply(split_taps(), before)
    assert len(calls(after, f"nn.conv{rank}d")) == sums
    assert_same(before, after)


@pytest.mark.parametrize(
    ("extents", "padding", "shape"),
    [
        ((0, 8, 9, 4), 6, [0, 8, 9, 8]),
        ((2, 0, 9, 4), 6, [2, 0, 9, 8]),
        ((2, 12, 9, 4), (0, 6), [2, 0, 9, 8]),  # the kernel reaches over 13 rows
    ],
)
def test_convolutions_without_elements_stay(extents, padding, shape, monkeypatch):
    monkeypatch.setattr(tap_sums, "LEAST_SAVED", 0)
    values = Values()

    def body(emit, x):
        options = {"padding": padding, "dilation": 6}
        return emit(op.nn.conv2d(x, values.normal(3, 3, 4, 8), **options, **LAYOUT))

    (after,) = calls(apply(split_taps(), build(extents, body)), "nn.conv2d")
    assert [int(extent) for extent in after.ty.shape] == shape


def test_what_saves_little_and_groups_stay():
    values = Values()

    def body(emit, x):
        y = emit(op.nn.conv2d(x, values.normal(3, 3, 4, 8), padding=6, dilation=6, **LAYOUT))
        options = {"padding": 6, "dilation": 6, "groups": 8}
        return emit(op.nn.conv2d(y, values.normal(3, 3, 1, 8), **options, **LAYOUT))

    after = apply(split_taps(), build((2, 8, 9, 4), body))
    assert len(calls(after, "nn.conv2d")) == 2

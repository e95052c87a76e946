# SPDX-License-Identifier: Apache-2.0
"""Blocks of products of bytes are found, and weights that are not packed are told apart."""

import pytest
from byte_kernels import batch_matmul, convolution, dense, gram, packed_dense

from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.te import create_prim_func
from tvm_droplet_ms.design_space.dot_products.find_dot import DotUnit, find_dot
from tvm_droplet_ms.tuning.kernel.kernel_run import module_of

VNNI = DotUnit((16, 8, 4), 4, 32)


def found_in(module, name="c", unit=VNNI):
    schedule = Schedule(module)
    return find_dot(schedule.get(schedule.get_sblock(name)), unit)


@pytest.mark.parametrize(
    ("module", "axes", "packed_axes"),
    [
        (dense(8, 32, 16), (1, 2), (0, 1)),
        (dense(8, 32, 16, by_column=True), (1, 2), (1, 0)),
        (batch_matmul(2, 8, 16, 16), (2, 3), (2, 1)),
        (convolution(8, 16, 32), (3, 6), (3, 2)),
        (convolution(8, 16, 32, groups=2), (3, 6), (3, 2)),
    ],
    ids=["dense", "by column", "batch", "convolution", "groups"],
)
def test_axes_are_found(module, axes, packed_axes):
    found = found_in(module)
    assert found is not None
    assert (found.lane, found.step) == axes
    assert found.packed_axes == packed_axes
    assert found.dot.lanes == 16
    assert found.weights.name == "w"


def test_lanes_divide_the_columns():
    lanes = {columns: found_in(dense(8, columns, 16)) for columns in (1000, 36, 10)}
    assert lanes[1000].dot.lanes == 8
    assert lanes[36].dot.lanes == 4
    assert lanes[10] is None
    assert found_in(convolution(8, 32, 16, groups=2)).dot.lanes == 8  # A vector in one group.


def test_vectors_of_one_group_read_the_same_numbers():
    assert found_in(dense(8, 96, 16)).vectors == 6
    assert found_in(convolution(8, 16, 96)).vectors == 6
    assert found_in(convolution(8, 16, 96, groups=2)).vectors == 3
    assert found_in(convolution(8, 32, 32, groups=2)).vectors == 1


def test_packed_weights_are_known():
    def right(j, k):
        return j // 16, k // 4, j % 16, k % 4

    assert found_in(packed_dense(8, 32, 16, (2, 4, 16, 4), right)).packed_axes is None


@pytest.mark.parametrize(
    ("shape", "where"),
    [
        ((2, 4, 4, 16), lambda j, k: (j // 16, k // 4, k % 4, j % 16)),
        ((2, 16, 4, 4), lambda j, k: (j // 16, j % 16, k // 4, k % 4)),
        ((4, 4, 8, 4), lambda j, k: (j // 8, k // 4, j % 8, k % 4)),
        ((2, 8, 16, 2), lambda j, k: (j // 16, k // 2, j % 16, k % 2)),
        ((32, 16), lambda j, k: (31 - j, k)),
        ((512,), lambda j, k: (j * 16 + k,)),
    ],
    ids=["turned", "by rows", "eights", "pairs", "backwards", "flat"],
)
def test_weights_that_are_packed_otherwise_are_packed_again_or_left(shape, where):
    found = found_in(packed_dense(8, 32, 16, shape, where))
    # The dot products of eight lanes fit weights that are packed in eights.
    assert found is None or found.packed_axes is not None or found.dot.lanes == 8


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (module_of(create_prim_func(te_workload.matmul(8, 16, 16))), "C"),
        (dense(8, 32, 6), "c"),
        (
            module_of(create_prim_func(te_workload.depthwise_conv2d_nhwc(1, 8, 8, 16, 3))),
            "depth_conv2d_nhwc",
        ),
        (convolution(8, 3, 16), "c"),
        (convolution(8, 16, 16), "pad"),
        (gram(32, 16), "c"),
    ],
    ids=["floats", "short", "depthwise", "three channels", "no sum", "one matrix"],
)
def test_other_blocks_are_left(module, name):
    assert found_in(module, name) is None

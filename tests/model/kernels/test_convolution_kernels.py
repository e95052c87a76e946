# SPDX-License-Identifier: Apache-2.0
"""Kernels that are recognized as 3x3 convolutions, and others that are not."""

import numpy as np
import pytest
from graphs import build

import tvm
from tvm import relax, te, topi
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target
from tvm_droplet_ms.model.kernels.winograd.winograd import (
    Implementation,
    Layer,
    WinogradConvolutions,
    implementation,
    implementation_of,
)
from tvm_droplet_ms.model.kernels.winograd.winograd_kernel import winograd_convolution
from tvm_droplet_ms.tuning.compile.lowering import lower

LAYER = Layer(1, 14, 14, 16, 14, 14, 32)
TARGET = Target({"kind": "llvm", "num-cores": 1})


def kernel(arguments, output):
    return tvm.IRModule({"main": te.create_prim_func([*arguments, output])})


def data_of(layer):
    batch, height, width, channels = layer[:4]
    return te.placeholder((batch, height, width, channels), name="data")


def direct(layer, *, padding=1, stride=1, dilation=1, groups=1):
    data = data_of(layer)
    weights = te.placeholder((3, 3, layer.in_channels // groups, layer.channels), name="weights")
    convolution = topi.nn.conv(data, weights, stride, padding, dilation, groups, "NHWC", "HWIO")
    return [data, weights], convolution


def winograd(layer, tile, padding=(1, 1, 1, 1)):
    data = data_of(layer)
    weights = te.placeholder((tile + 2, tile + 2, layer.in_channels, layer.channels), name="W")
    return [data, weights], winograd_convolution(data, weights, tile, padding)


def with_epilogue(arguments, output):
    """A residual input of the output's shape, before the others, and a ReLU."""
    residual = te.placeholder(output.shape, name="residual")
    return [residual, *arguments], topi.nn.relu(topi.add(output, residual))


class TestConvolutions:
    @pytest.mark.parametrize("tile", [None, 2, 4])
    @pytest.mark.parametrize(
        ("layer", "padding"),
        [
            (LAYER, (1, 1, 1, 1)),
            (Layer(2, 14, 12, 16, 12, 10, 8), (0, 0, 0, 0)),
            (Layer(1, 13, 9, 3, 13, 9, 3), (1, 1, 1, 1)),
            (Layer(1, 8, 8, 1, 8, 8, 1), (1, 1, 1, 1)),
            (Layer(1, 8, 8, 4, 9, 8, 4), (2, 1, 1, 1)),
        ],
    )
    @pytest.mark.parametrize("epilogue", [False, True])
    def test_are_told_with_their_layer(self, layer, padding, tile, epilogue):
        made = direct(layer, padding=padding) if tile is None else winograd(layer, tile, padding)
        made = with_epilogue(*made) if epilogue else made
        assert implementation_of(kernel(*made)) == Implementation(layer, tile)


def batched_matmul(batch, heads):
    left = te.placeholder((batch, heads, 5, 7), name="left")
    right = te.placeholder((batch, heads, 7, 5), name="right")
    depth = te.reduce_axis((0, 7), name="k")
    product = te.compute(
        (batch, heads, 5, 5),
        lambda b, h, i, j: te.sum(left[b, h, i, depth] * right[b, h, depth, j], axis=[depth]),
        name="matmul",
    )
    return [left, right], product


class TestOtherKernels:
    @pytest.mark.parametrize("count", [3, 4, 6])
    def test_batched_matmul_with_as_many_heads(self, count):
        assert implementation_of(kernel(*batched_matmul(count, count))) is None

    def test_dilated_convolution_of_the_same_shapes(self):
        made = direct(LAYER, padding=2, dilation=2)
        assert tuple(made[1].shape) == (1, 14, 14, 32)
        assert implementation_of(kernel(*made)) is None

    @pytest.mark.parametrize("options", [{"stride": 2}, {"groups": 4}, {"groups": 16}])
    def test_convolution_that_winograd_cannot_compute(self, options):
        assert implementation_of(kernel(*direct(LAYER, **options))) is None

    def test_pointwise_convolution(self):
        data = data_of(LAYER)
        weights = te.placeholder((1, 1, 16, 32), name="weights")
        convolution = topi.nn.conv2d_nhwc(data, weights, 1, 0, 1)
        assert implementation_of(kernel([data, weights], convolution)) is None

    def test_pool_of_3x3(self):
        data = data_of(LAYER)
        pool = topi.nn.pool2d(data, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), "max", layout="NHWC")
        assert implementation_of(kernel([data], pool)) is None


def network():
    """A convolution with a bias and a ReLU, and a product of 3 batches of 3 heads."""
    generator = np.random.default_rng(0)
    weights = relax.const(generator.standard_normal((3, 3, 16, 32)).astype("float32"))
    bias = relax.const(generator.standard_normal((1, 1, 1, 32)).astype("float32"))

    def body(emit, image, left, right):
        layouts = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
        layer = emit(relax.op.nn.conv2d(image, weights, padding=1, **layouts))
        layer = emit(relax.op.nn.relu(emit(relax.op.add(layer, bias))))
        return layer, emit(relax.op.matmul(left, right))

    return build([(1, 14, 14, 16), (3, 3, 5, 7), (3, 3, 7, 5)], body)


@pytest.mark.parametrize("tile", [None, 2, 4])
def test_fused_kernels_of_a_graph(tile):
    graph = network() if tile is None else WinogradConvolutions(lambda layer: tile)(network())
    tasks = ms.relax_integration.extract_tasks(lower(graph, TARGET), TARGET)
    found = {str(task.task_name): implementation(task) for task in tasks}
    assert len(found) == 2
    (convolution,) = (name for name in found if "conv2d" in name and "relu" in name)
    (product,) = (name for name in found if "matmul" in name)
    assert found[convolution] == Implementation(LAYER, tile)
    assert found[product] is None

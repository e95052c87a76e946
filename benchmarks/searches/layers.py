# SPDX-License-Identifier: Apache-2.0
"""Layers to tune live, each in MetaSchedule's whole design space. TVM is imported on demand."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Layer:
    """A workload.

    - ``description``: the operator and its shapes.
    - ``function``: the function of ``tvm.s_tir.meta_schedule.testing.te_workload`` that makes it.
    - ``arguments``: the arguments of the function.
    - ``training_space``: the space of the package with the same workload, if there is one. The
      shipped cost model learned from it, so a method with this model has an unfair advantage on the
      layer.
    """

    description: str
    function: str
    arguments: tuple[Any, ...]
    training_space: str | None = None


def _conv(text: str, *arguments: int) -> Layer:
    return Layer(text, "conv2d_nhwc", (1, *arguments))


def _depthwise(text: str, *arguments: int, training_space: str | None = None) -> Layer:
    return Layer(text, "depthwise_conv2d_nhwc", (1, *arguments), training_space)


LAYERS: Mapping[str, Layer] = {
    "conv2d": _conv("3x3 convolution, NHWC 56x56x64 -> 64", 56, 56, 64, 64, 3, 1, 1),
    "depthwise": _depthwise(
        "3x3 depthwise convolution, NHWC 112x112x32",
        *(112, 112, 32, 3, 1, 1),
        training_space="whole_depthwise",
    ),
    "dense": Layer("dense, 128x1024 times 1024x1024", "matmul", (128, 1024, 1024)),
    "softmax": Layer("softmax over the last axis of 512x1024", "softmax_mn", (512, 1024)),
    "conv2d_nchw": Layer(
        "3x3 convolution, NCHW 64x56x56 -> 64", "conv2d_nchw", (1, 56, 56, 64, 64, 3, 3, 1, 1)
    ),
    "conv2d_1x1": _conv("1x1 convolution, NHWC 28x28x256 -> 128", 28, 28, 256, 128, 1),
    "conv2d_7x7": _conv(
        "7x7 convolution of stride 2, NHWC 224x224x3 -> 64", 224, 224, 3, 64, 7, 2, 3
    ),
    "batch_matmul": Layer(
        "batched matmul, 12 of 128x64 times 64x128", "batch_matmul_nkkm", (12, 128, 128, 64)
    ),
}
"""The layers of the live comparison."""

MORE_LAYERS: Mapping[str, Layer] = {
    "depthwise_56": _depthwise("3x3 depthwise convolution, NHWC 56x56x144", 56, 56, 144, 3, 1, 1),
    "conv2d_c9": _conv(
        "3x3 convolution, NHWC 14x14x256 -> 256, layer C9 of AutoTVM's ResNet-18",
        *(14, 14, 256, 256, 3, 1, 1),
    ),
    "matmul_1024": Layer("matrix product, 1024x1024 times 1024x1024", "matmul", (1024, 1024, 1024)),
    "small_dense": Layer("dense, 64x64 times 64x64", "matmul", (64, 64, 64)),
}
"""Layers that are tuned only by name: a depthwise convolution that the shipped cost model has not
seen, two more layers to judge the search by, and one for a quick test of the commands."""

ALL_LAYERS: Mapping[str, Layer] = {**LAYERS, **MORE_LAYERS}


def make_module(layer: Layer) -> Any:
    """Make the ``IRModule`` of a layer, with its function named ``main``."""
    from tvm import IRModule, te
    from tvm.s_tir.meta_schedule.testing import te_workload

    func = te.create_prim_func(getattr(te_workload, layer.function)(*layer.arguments))
    return IRModule({"main": func.with_attr("global_symbol", "main")})

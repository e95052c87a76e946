# SPDX-License-Identifier: Apache-2.0
"""Workloads to learn from: layers of common models, each with MetaSchedule's whole space.

A cost model learns from a measured sample of each. The more kinds of layers there are, the more
likely one resembles the user's.
"""

from collections.abc import Callable, Sequence
from functools import partial

from tvm import te, tirx, topi
from tvm.s_tir.meta_schedule.testing import te_workload as _t

Tensors = Callable[[], Sequence[te.Tensor]]
"""Makes the tensors of a workload: its inputs, and its output."""

Workload = tuple[str, Tensors]
"""A one-line description of a workload, and a function that makes its tensors."""


def made(make: Callable[..., te.Tensor], **shapes: tuple[int, ...]) -> Tensors:
    """The tensors of a function of inputs with these names and shapes."""

    def tensors() -> list[te.Tensor]:
        inputs = [te.placeholder(shape, name=name) for name, shape in shapes.items()]
        return [*inputs, make(*inputs)]

    return tensors


def product(rows: int, columns: int, inner: int) -> Workload:
    return f"matrix product {rows}x{columns}x{inner}", partial(_t.matmul, rows, columns, inner)


def batch_product(batch: int, rows: int, columns: int, inner: int) -> Workload:
    tensors = partial(_t.batch_matmul_nkkm, batch, rows, columns, inner)
    return f"{batch} matrix products {rows}x{columns}x{inner}", tensors


def convolution(
    size: int, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, dilation: int = 1
) -> Workload:
    """A convolution of a square NHWC image, with the padding that keeps its size at stride 1."""
    form = f" of stride {stride}" * (stride > 1) + f" of dilation {dilation}" * (dilation > 1)
    padding = dilation * (kernel // 2)
    return (
        f"{kernel}x{kernel} convolution NHWC {size}x{size}{form}, {inputs} to {outputs} channels",
        lambda: _t.conv2d_nhwc(1, size, size, inputs, outputs, kernel, stride, padding, dilation),
    )


def convolution_nchw(size: int, inputs: int, outputs: int, kernel: int = 3) -> Workload:
    return (
        f"{kernel}x{kernel} convolution NCHW {size}x{size}, {inputs} to {outputs} channels",
        lambda: _t.conv2d_nchw(1, size, size, inputs, outputs, kernel, kernel, 1, kernel // 2),
    )


def depthwise(size: int, channels: int, kernel: int = 3, stride: int = 1) -> Workload:
    form = f" of stride {stride}" * (stride > 1)
    return (
        f"{kernel}x{kernel} depthwise convolution NHWC {size}x{size}{form}, {channels} channels",
        lambda: _t.depthwise_conv2d_nhwc(1, size, size, channels, kernel, stride, kernel // 2),
    )


def softmax(rows: int, columns: int) -> Workload:
    return f"softmax over the last axis of {rows}x{columns}", partial(_t.softmax_mn, rows, columns)


def layer_norm(rows: int, columns: int) -> Workload:
    normed = partial(topi.nn.layer_norm, axis=[1])
    tensors = made(normed, data=(rows, columns), gamma=(columns,), beta=(columns,))
    return f"layer norm over the last axis of {rows}x{columns}", tensors


def dense_bias_relu(data: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
    (rows, inner), columns = data.shape, weight.shape[1]
    k = te.reduce_axis((0, inner), name="k")
    dense = te.compute(
        (rows, columns), lambda i, j: te.sum(data[i, k] * weight[k, j], axis=k), name="dense"
    )
    biased = te.compute((rows, columns), lambda i, j: dense[i, j] + bias[j], name="biased")
    zero = tirx.const(0, "float32")
    return te.compute((rows, columns), lambda i, j: te.max(biased[i, j], zero), name="relu")


def _dense_gelu(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    (rows, inner), columns = data.shape, weight.shape[0]
    k = te.reduce_axis((0, inner), name="k")
    dense = te.compute(
        (rows, columns), lambda i, j: te.sum(data[i, k] * weight[j, k], axis=k), name="dense"
    )
    return te.compute(
        (rows, columns),
        lambda i, j: 0.5 * dense[i, j] * (1.0 + tirx.erf(dense[i, j] * 0.70710678)),
        name="gelu",
    )


LAYERS: dict[str, Workload] = {
    "matmul_square": product(256, 256, 256),
    "matmul_uneven": product(100, 180, 300),
    "matmul_token": product(1, 1024, 1024),
    "matmul_wide": product(16, 768, 384),
    "matmul_relu": (
        "matrix product 128x192x256 with ReLU",
        lambda: _t.matmul_relu(128, 192, 256),
    ),
    "dense_gelu": (
        "matrix product 64x512x128 with a transposed weight and GELU",
        made(_dense_gelu, data=(64, 128), weight=(512, 128)),
    ),
    "attention_scores": (
        "attention scores of 64 tokens, 8 heads of 32",
        lambda: _t.transpose_batch_matmul(1, 64, 8, 32),
    ),
    "attention_values": batch_product(8, 64, 48, 96),
    "softmax_scores": softmax(512, 64),
    "softmax_classes": softmax(4, 1000),
    "layer_norm_wide": layer_norm(32, 768),
    "layer_norm_uneven": layer_norm(50, 120),
    "rms_norm": (
        "RMS norm over the last axis of 64x512",
        made(partial(topi.nn.rms_norm, axis=[1]), data=(64, 512), weight=(512,)),
    ),
    "row_sum": (
        "sum over the last axis of 256x640",
        made(partial(topi.sum, axis=1), data=(256, 640)),
    ),
    "norm": ("Frobenius norm of 4 matrices 128x128", lambda: _t.norm_bmn(4, 128, 128)),
    "global_average": (
        "global average pooling NCHW 14x14, 256 channels",
        made(lambda data: topi.nn.global_pool(data, "avg", "NCHW"), data=(1, 256, 14, 14)),
    ),
    "max_pool": (
        "2x2 maximum pooling NCHW 56x56, 32 channels",
        lambda: _t.max_pool2d_nchw(1, 56, 56, 32, 1),
    ),
    "convolution_stem": convolution(64, 3, 32, kernel=7, stride=2),
    "convolution_strided": convolution(28, 32, 64, stride=2),
    "convolution_projection": convolution(14, 96, 192, kernel=1),
    "convolution_nchw": convolution_nchw(20, 48, 32),
    "convolution_nchw_1x1": convolution_nchw(14, 128, 128, kernel=1),
    "convolution_bn_relu": (
        "3x3 convolution NHWC 14x14, 32 to 48 channels, with batch norm and ReLU",
        lambda: _t.conv2d_nhwc_bn_relu(1, 14, 14, 32, 48, 3, 1, 1),
    ),
    "convolution_grouped": (
        "3x3 convolution NHWC 14x14 of 4 groups, 64 to 64 channels",
        lambda: _t.conv2d_nhwc(1, 14, 14, 64, 64, 3, 1, 1, 1, 4),
    ),
    "convolution_transposed": (
        "4x4 transposed convolution NCHW 8x8 of stride 2, 32 to 16 channels",
        made(
            lambda data, weight: topi.nn.conv2d_transpose_nchw(
                data, weight, (2, 2), (1, 1), "float32", (0, 0)
            ),
            data=(1, 32, 8, 8),
            weight=(32, 16, 4, 4),
        ),
    ),
    "convolution_3d": (
        "3x3x3 convolution NDHWC 8x14x14, 16 to 16 channels",
        lambda: _t.conv3d_ndhwc(1, 8, 14, 14, 16, 16, 3, 1, 1),
    ),
    "depthwise_5x5": depthwise(28, 48, kernel=5),
    "depthwise_strided": depthwise(56, 64, stride=2),
    "depthwise_nchw": (
        "3x3 depthwise convolution NCHW 28x28, 64 channels",
        made(
            lambda data, weight: topi.nn.depthwise_conv2d_nchw(data, weight, 1, 1, 1),
            data=(1, 64, 28, 28),
            weight=(64, 1, 3, 3),
        ),
    ),
}
"""Workloads of samples, by name."""

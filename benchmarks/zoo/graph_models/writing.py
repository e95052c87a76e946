# SPDX-License-Identifier: Apache-2.0
"""Writes Relax models with random weights as the frontends import them: NCHW, nothing folded."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.ir import IRModule

EPSILON = 1e-5
"""The epsilon that batch norms add to variances."""


class Network:
    """Writes a Relax function."""

    def __init__(self, emit: Callable[[Any], Any], seed: int = 0) -> None:
        self.emit = emit
        self._generator = np.random.default_rng(seed)

    def normal(self, *shape: int, fan_in: int, gain: float = 1.0) -> np.ndarray:
        """Normal values of variance ``gain / fan_in``, which preserves the scale of activations."""
        values = self._generator.standard_normal(shape, dtype="float32")
        values *= np.float32(np.sqrt(gain / fan_in))
        return values

    def uniform(self, *shape: int) -> np.ndarray:
        """Random values between 0.5 and 1.5."""
        return self._generator.uniform(0.5, 1.5, shape).astype("float32")

    def kernel(
        self, inputs: int, outputs: int, size: int | tuple[int, int], groups: int = 1
    ) -> np.ndarray:
        """OIHW weights of a convolution before a ReLU. ``size``: one size, or height and width."""
        height, width = (size, size) if isinstance(size, int) else size
        fan_in = inputs // groups * height * width
        return self.normal(outputs, inputs // groups, height, width, fan_in=fan_in, gain=2.0)

    def statistics(self, channels: int) -> list[np.ndarray]:
        """Scale, shift, mean and variance of a batch norm."""
        shifts = [self.normal(channels, fan_in=100) for _ in range(2)]
        return [self.uniform(channels), *shifts, self.uniform(channels)]

    def const(self, array: np.ndarray) -> Any:
        """A constant."""
        return relax.const(np.ascontiguousarray(array))

    def convolve(
        self, x: Any, kernel: np.ndarray, stride: int = 1, groups: int = 1, padded: bool = True
    ) -> Any:
        """A convolution. With ``padded``, its output has the input's size at stride 1."""
        padding = (kernel.shape[2] // 2, kernel.shape[3] // 2) if padded else 0
        weight = self.const(kernel)
        return self.emit(
            relax.op.nn.conv2d(x, weight, strides=stride, padding=padding, groups=groups)
        )

    def norm(self, x: Any, statistics: Sequence[np.ndarray]) -> Any:
        """A batch norm at inference."""
        constants = [self.const(each) for each in statistics]
        norm = relax.op.nn.batch_norm(x, *constants, axis=1, epsilon=EPSILON, training=False)
        return self.emit(relax.TupleGetItem(self.emit(norm), 0))

    def layer(
        self,
        x: Any,
        outputs: int,
        size: int | tuple[int, int],
        stride: int = 1,
        groups: int = 1,
        padded: bool = True,
    ) -> Any:
        """A convolution without a bias, and its batch norm."""
        kernel = self.kernel(channels_of(x), outputs, size, groups)
        convolved = self.convolve(x, kernel, stride, groups, padded)
        return self.norm(convolved, self.statistics(outputs))

    def relu(self, x: Any) -> Any:
        """Relu."""
        return self.emit(relax.op.nn.relu(x))

    def add(self, x: Any, y: Any) -> Any:
        """A sum."""
        return self.emit(relax.op.add(x, y))

    def concat(self, *parts: Any) -> Any:
        """Concatenation along the channels."""
        return self.emit(relax.op.concat(list(parts), axis=1))

    def average(self, x: Any, stride: int = 1) -> Any:
        """A 3x3 average pooling that excludes padding."""
        call = relax.op.nn.avg_pool2d(x, (3, 3), (stride, stride), (1, 1), count_include_pad=False)
        return self.emit(call)

    def largest(self, x: Any, stride: int, padded: bool = True) -> Any:
        """A 3x3 max pooling."""
        padding = (1, 1) if padded else (0, 0)
        return self.emit(relax.op.nn.max_pool2d(x, (3, 3), (stride, stride), padding))

    def dense(self, x: Any, outputs: int, bias: bool = True) -> Any:
        """A product with a weight matrix, and an optional bias."""
        inputs = int(x.ty.shape[-1])
        weight = self.normal(inputs, outputs, fan_in=inputs)
        product = self.emit(relax.op.matmul(x, self.const(weight)))
        if not bias:
            return product
        return self.add(product, self.const(self.normal(outputs, fan_in=100)))

    def classify(self, x: Any, classes: int) -> Any:
        """Global average pooling and a dense layer: the classifier of an image network."""
        mean = self.emit(relax.op.mean(x, axis=[2, 3]))
        return self.dense(mean, classes)


def channels_of(x: Any) -> int:
    """The number of channels of an NCHW tensor."""
    return int(x.ty.shape[1])


def write(body: Callable[..., Any], *shapes: Sequence[int], seed: int = 0) -> IRModule:
    """Write a module with one function, ``main``.

    ``body``: called with a ``Network`` and the inputs; returns the output. ``shapes``: the shapes
    of the float32 inputs. ``seed``: seed of the weights. Returns the module, whose weights are
    constants.
    """
    builder = relax.BlockBuilder()
    inputs = [
        relax.Var(f"x{index}", relax.TensorType(list(shape), "float32"))
        for index, shape in enumerate(shapes)
    ]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = body(Network(builder.emit, seed), *inputs)
            output = builder.emit_output(result)
        builder.emit_func_output(output)
    return builder.get()

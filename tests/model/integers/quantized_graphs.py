# SPDX-License-Identifier: Apache-2.0
"""Random quantized ONNX models, in the forms that exporters write."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx_models import value

TYPES = {"uint8": (TensorProto.UINT8, 0, 255), "int8": (TensorProto.INT8, -128, 127)}


class Builder:
    """Makes a graph node by node; ``dtype``: of activations."""

    def __init__(self, seed, dtype="uint8"):
        self.random = np.random.default_rng(seed)
        self.dtype = dtype
        self.nodes, self.constants = [], {}

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def add(self, kind, *inputs, domain="", **attributes):
        output = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], domain=domain, **attributes))
        return output

    def parameters(self, scale=None, point=None):
        """The scale and the zero point of an activation."""
        _, low, high = TYPES[self.dtype]
        if point is None:
            point = self.random.choice([low, int(self.random.integers(low, high + 1))])
        scale = self.random.uniform(0.02, 0.05) if scale is None else scale
        return self.constant(np.float32(scale)), self.constant(np.array(point, self.dtype))

    def requantize(self, name, scale=None):
        """Quantize and dequantize."""
        parameters = self.parameters(scale)
        return self.add(
            "DequantizeLinear", self.add("QuantizeLinear", name, *parameters), *parameters
        )

    def bytes_of_weight(self, *shape, channels=None, dtype="int8"):
        """A weight, its scale and its zero point; of each channel where their number is given."""
        extents = () if channels is None else (channels,)
        scale = self.random.uniform(0.002, 0.01, extents).astype(np.float32)
        _, low, high = TYPES[dtype]
        zero = np.zeros(extents) if dtype == "int8" else self.random.integers(90, 180, extents)
        array = self.random.integers(low, high + 1, shape)
        return [
            self.constant(each)
            for each in (array.astype(dtype), scale, np.asarray(zero).astype(dtype))
        ]

    def weight(self, *shape, axis=0, dtype="int8"):
        """A dequantized weight, for each channel or for all."""
        channels = shape[axis] if self.random.random() < 0.5 else None
        names = self.bytes_of_weight(*shape, channels=channels, dtype=dtype)
        return self.add("DequantizeLinear", *names, axis=axis)

    def model(self, inputs, output, kind=TensorProto.FLOAT):
        graph = helper.make_graph(
            self.nodes,
            "quantized",
            inputs,
            [value(output, None, kind)],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, ir_version=8, opset_imports=opsets)


def random_network(seed, dtype):
    """Convolutions, one of them depthwise, a residual addition, a pool and a matrix product; bytes
    in the end."""
    builder = Builder(seed, dtype)
    random = builder.random
    channels, size = int(random.integers(1, 6)), int(random.integers(5, 9))
    shape = [1, channels, size, size]
    data = builder.requantize("x")
    for _ in range(2):
        kernel, outputs = int(random.choice([1, 3])), int(random.integers(2, 20))
        bias = builder.constant(random.standard_normal(outputs).astype(np.float32))
        kind = str(random.choice(["int8", "uint8"]))
        weight = builder.weight(outputs, channels, kernel, kernel, dtype=kind)
        data = builder.add(
            "Conv",
            *(data, weight, bias),
            strides=[int(n) for n in random.integers(1, 3, 2)],
            pads=[int(n) for n in random.integers(0, kernel, 4)],
        )
        if random.random() < 0.5:
            data = builder.add("Relu", data)
        data = builder.requantize(data)
        channels = outputs
        if random.random() < 0.5:
            data = builder.requantize(builder.add("Add", data, builder.add("Sigmoid", data)))
    times = int(random.integers(1, 3))
    weight = builder.weight(times * channels, 1, 3, 3, dtype=str(random.choice(["int8", "uint8"])))
    data = builder.add("Conv", data, weight, group=channels, pads=random.integers(0, 3, 4).tolist())
    data = builder.requantize(data, 0.2)
    channels *= times
    data = builder.requantize(builder.add("GlobalAveragePool", data), 0.01)
    data = builder.add("Flatten", data)
    data = builder.add("MatMul", data, builder.weight(channels, 10, axis=1))
    output = builder.add("QuantizeLinear", data, *builder.parameters(0.01, point=60))
    return builder.model([value("x", shape)], output, TYPES[dtype][0]), shape

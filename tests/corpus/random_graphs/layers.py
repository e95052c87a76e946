# SPDX-License-Identifier: Apache-2.0
"""Random layers: convolutions, pools, products and norms."""

from __future__ import annotations

from .maker import GraphMaker, Value


def convolution(make: GraphMaker, x: Value) -> Value | None:
    """Plain, grouped, depthwise, strided, dilated, with uneven pads; of one axis or two."""
    if x.rank not in (3, 4):
        return None
    batch, channels, *image = x.shape
    groups = make.pick([1, 1, channels, *[g for g in (2, 3, 4) if channels % g == 0]])
    outputs = groups * make.pick([1, 2] if groups > 4 else [1, 2, 3, 5, 8])
    kernel = [make.pick([1, 1, 2, 3, 3, 5]) for _ in image]
    dilation = [make.pick([1, 1, 1, 2]) for _ in image]
    strides = [make.pick([1, 1, 2, 3]) for _ in image]
    begin, end = ([make.integer(0, k // 2 + (k > 1)) for k in kernel] for _ in range(2))
    shape = []
    for axis, extent in enumerate(image):
        reach = (kernel[axis] - 1) * dilation[axis] + 1
        free = extent + begin[axis] + end[axis] - reach
        if free < 0:
            return None
        shape.append(free // strides[axis] + 1)
    inputs = channels // groups
    fan = inputs
    for extent in kernel:
        fan *= extent
    operands = [x.name, make.weight([outputs, inputs, *kernel], fan)]
    if make.chance(60):
        operands.append(make.weight([outputs]))
    return make.node(
        "Conv",
        operands,
        [batch, outputs, *shape],
        group=groups,
        dilations=dilation,
        strides=strides,
        pads=[*begin, *end],
        kernel_shape=kernel,
    )


def transposed_convolution(make: GraphMaker, x: Value) -> Value | None:
    """A transposed convolution with strides, pads and output padding."""
    if x.rank not in (3, 4):
        return None
    batch, channels, *image = x.shape
    groups = make.pick([1, 1, *[g for g in (2, 3, channels) if channels % g == 0]])
    outputs = make.pick([1, 2, 3, 4])
    kernel = [make.integer(1, 4) for _ in image]
    strides = [make.integer(1, 3) for _ in image]
    begin, end = ([make.integer(0, k // 2) for k in kernel] for _ in range(2))
    extra = [make.integer(0, s - 1) if make.chance(30) else 0 for s in strides]
    pieces = zip(image, kernel, strides, begin, end, extra, strict=True)
    shape = [(n - 1) * s + k - b - e + more for n, k, s, b, e, more in pieces]
    if min(shape) < 1:
        return None
    operands = [x.name, make.weight([channels, outputs, *kernel], channels // groups)]
    if make.chance(50):
        operands.append(make.weight([outputs * groups]))
    return make.node(
        "ConvTranspose",
        operands,
        [batch, outputs * groups, *shape],
        group=groups,
        strides=strides,
        pads=[*begin, *end],
        output_padding=extra,
        kernel_shape=kernel,
    )


def pool(make: GraphMaker, x: Value) -> Value | None:
    """A maximum or an average, with pads that may be uneven."""
    if x.rank not in (3, 4):
        return None
    kind = make.pick(["MaxPool", "AveragePool"])
    image = x.shape[2:]
    kernel = [make.integer(1, 3) for _ in image]
    strides = [make.integer(1, 3) for _ in image]
    begin, end = ([make.integer(0, k - 1) for k in kernel] for _ in range(2))
    shape = []
    for axis, extent in enumerate(image):
        free = extent + begin[axis] + end[axis] - kernel[axis]
        if free < 0:
            return None
        shape.append(free // strides[axis] + 1)
    options = {"kernel_shape": kernel, "strides": strides, "pads": [*begin, *end]}
    if kind == "AveragePool":
        options["count_include_pad"] = make.integer(0, 1)
    return make.node(kind, [x.name], [*x.shape[:2], *shape], **options)


def global_pool(make: GraphMaker, x: Value) -> Value | None:
    if x.rank not in (3, 4):
        return None
    kind = make.pick(["GlobalAveragePool", "GlobalMaxPool"])
    return make.node(kind, [x.name], [*x.shape[:2], *[1] * (x.rank - 2)])


def product(make: GraphMaker, x: Value) -> Value | None:
    """A product by a weight, or by a stack of them."""
    if x.rank < 2:
        return None
    columns = make.pick([1, 2, 3, 7, 8, 16])
    stack = list(x.shape[:-2]) if make.chance(25) else []
    weight = make.weight([*stack, x.shape[-1], columns], x.shape[-1])
    return make.node("MatMul", [x.name, weight], [*x.shape[:-1], columns])


def product_of_two(make: GraphMaker, x: Value) -> Value | None:
    """A product of two values, as in attention."""
    if x.rank < 2:
        return None
    others = [
        y
        for y in make.values
        if y.rank == x.rank and y.shape[:-2] == x.shape[:-2] and y.shape[-1] == x.shape[-1]
    ]
    y = make.pick(others)
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    flipped = [*y.shape[:-2], y.shape[-1], y.shape[-2]]
    turned = make.node("Transpose", [y.name], flipped, perm=order)
    shape = [*x.shape[:-1], y.shape[-2]]
    result = make.node("MatMul", [x.name, turned.name], shape)
    scale = make.weight([], x.shape[-1])
    return make.node("Mul", [result.name, scale], shape)


def gemm(make: GraphMaker, x: Value) -> Value | None:
    if x.rank != 2:
        return None
    turned, columns = make.integer(0, 1), make.pick([1, 3, 5, 8])
    rows, inner = x.shape[::-1] if turned else x.shape
    flipped = make.integer(0, 1)
    weight = make.weight([columns, inner] if flipped else [inner, columns], inner)
    operands = [x.name, weight]
    if make.chance(70):
        operands.append(make.weight(make.pick([(columns,), (1, columns), (rows, 1), ()])))
    options = {"alpha": make.pick([1.0, 0.5]), "beta": make.pick([1.0, 2.0])}
    return make.node("Gemm", operands, [rows, columns], transA=turned, transB=flipped, **options)


def batch_norm(make: GraphMaker, x: Value) -> Value | None:
    if x.rank < 2:
        return None
    channels = [x.shape[1]]
    statistics = [make.positive(channels), make.weight(channels)]
    statistics += [make.weight(channels), make.positive(channels)]
    return make.node("BatchNormalization", [x.name, *statistics], x.shape, epsilon=1e-4)


def instance_norm(make: GraphMaker, x: Value) -> Value | None:
    # Of few numbers, the variance may be all rounding.
    if x.rank < 3 or x.size // (x.shape[0] * x.shape[1]) < 4:
        return None
    channels = [x.shape[1]]
    operands = [x.name, make.positive(channels), make.weight(channels)]
    return make.node("InstanceNormalization", operands, x.shape, epsilon=1e-2)


def layer_norm(make: GraphMaker, x: Value) -> Value | None:
    if x.rank < 2:
        return None
    axis = make.integer(1, x.rank - 1)
    shape = x.shape[axis:]
    operands = [x.name, make.positive(shape)]
    operands += [make.weight(shape)] if make.chance(70) else []
    return make.node("LayerNormalization", operands, x.shape, axis=axis, epsilon=1e-2)


LAYERS = (
    *[convolution] * 5, *[transposed_convolution] * 2, *[pool] * 2, global_pool, *[product] * 2,
    product_of_two, gemm, batch_norm, instance_norm, layer_norm,
)  # fmt: skip
"""Layers, by how often they are tried."""

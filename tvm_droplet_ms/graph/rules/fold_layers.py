# SPDX-License-Identifier: Apache-2.0
"""Fold: scales and shifts become part of the weights of layers. Imports no TVM."""

from collections.abc import Iterator
from functools import partial

from ..cases import Case, CaseMaker
from ..equality.egraph import EGraph
from ..equality.language import Term
from .draws import channel_shape, image, random_convolution, result_shape
from .matching import layers, with_weight
from .rule import Conditions, Equality, Rule, declare
from .terms import along, axes_of, call, per_axis, reshape, varies_along

_rule = partial(declare, "fold")


def _scaled_convolutions(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv(x, w) * s = conv(x, w * s)."""
    for number, node in graph.named("multiply"):
        for value, scale in with_weight(graph, node):
            if not when("of its shape", graph.shape(value) == graph.shape(number)):
                continue
            for conv in graph.named_in(value, "conv2d"):
                data, weight = conv.children
                axes, shape = axes_of(conv.operator), graph.shape(scale)
                if not graph.is_weight(weight):
                    continue
                if not when("one for each channel", varies_along(shape, 4) <= {axes.channel}):
                    continue
                outputs = graph.shape(weight)[axes.outputs]
                factor = per_axis(scale, shape, along(axes.outputs, outputs, 4))
                scaled = call("multiply", weight, factor)
                yield Equality(number, Term(conv.operator, (data, scaled)))


def _scaled_convolution_case(make: CaseMaker) -> Case:
    layout = make.pick(["NCHW", "NHWC"])
    data = make.input(*[{"N": 1, "C": 2, "H": 6, "W": 6}[letter] for letter in layout])
    conv = random_convolution(
        make, data, 2, layout, make.pick([1, 2]), padding=(0, 0, 0, 0), dilation=(1, 1)
    )
    shape = result_shape(conv, (6, 6))
    scale = channel_shape(make, layout, shape[layout.index("C")])
    scale = tuple(shape[axis] if extent == -1 else extent for axis, extent in enumerate(scale))
    if make.chance(0.1):
        scale = (1, *scale)
    return make.case(call("multiply", conv, make.weight(*scale)))


def _convolutions_of_scaled(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv(x * s, w) = conv(x, w * s)."""
    for number, conv in layers(graph, "conv2d"):
        data, weight = conv.children
        axes = axes_of(conv.operator)
        for inner in graph.named_in(data, "multiply"):
            for source, scale in with_weight(graph, inner):
                if graph.shape(source) != graph.shape(data):
                    continue
                shape = graph.shape(scale)
                if not when("one for each channel", varies_along(shape, 4) <= {axes.channel}):
                    continue
                # More groups, whose weights are smaller, refuse the product by their types.
                channels = graph.shape(data)[axes.channel]
                factor = per_axis(scale, shape, along(axes.inputs, channels, 4))
                scaled = call("multiply", weight, factor)
                yield Equality(number, Term(conv.operator, (source, scaled)))


def _convolution_of(name: str, make: CaseMaker) -> Case:
    layout = make.pick(["NCHW", "NHWC"])
    channels = 4
    data = image(make, layout, channels, low=4)
    shape = data.operator.get("shape")
    weight = channel_shape(make, layout, channels)
    weight = tuple(shape[axis] if extent == -1 else extent for axis, extent in enumerate(weight))
    inner = call(name, data, make.weight(*weight))
    groups = make.pick([1, 1, 1, 2, 4])
    return make.case(random_convolution(make, inner, channels, layout, groups))


def _convolutions_of_shifted(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv(x + t, w) = conv(x, w) + sum(w) t."""
    for number, conv in layers(graph, "conv2d"):
        data, weight = conv.children
        op, axes = conv.operator, axes_of(conv.operator)
        for inner in graph.named_in(data, "add"):
            for source, shift in with_weight(graph, inner):
                if graph.shape(source) != graph.shape(data):
                    continue
                shape = graph.shape(shift)
                if not when("one for each channel", varies_along(shape, 4) <= {axes.channel}):
                    continue
                if not when("one group", op.get("groups") == 1):
                    continue
                if not when("no padding", not any(op.get("padding"))):
                    continue
                channels = graph.shape(data)[axes.channel]
                values = per_axis(shift, shape, along(axes.inputs, channels, 4))
                product = call("multiply", weight, values)
                others = tuple(axis for axis in range(4) if axis != axes.outputs)
                bias = call("sum", product, axis=others, keepdims=False)
                outputs = graph.shape(weight)[axes.outputs]
                wide = [1] * 4
                wide[axes.channel] = outputs
                moved = Term(op, (source, weight))
                yield Equality(number, call("add", moved, reshape(bias, *wide)))


def _scaled_matmuls(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x @ w) * s = x @ (w * s)."""
    for number, node in graph.named("multiply"):
        for value, scale in with_weight(graph, node):
            if not when("of its shape", graph.shape(value) == graph.shape(number)):
                continue
            for product in graph.named_in(value, "matmul"):
                data, weight = product.children
                rank = graph.type(value).rank
                shape = graph.shape(scale)
                if not graph.is_weight(weight) or graph.type(weight).rank != 2:
                    continue
                if not when("one for each column", varies_along(shape, rank) <= {rank - 1}):
                    continue
                columns = graph.shape(weight)[1]
                factor = per_axis(scale, shape, (columns,))
                scaled = call("multiply", weight, factor)
                yield Equality(number, call("matmul", data, scaled))


def _scaled_matmul_case(make: CaseMaker) -> Case:
    rows = make.pick([2, 4])
    product = call("matmul", make.input(rows, 3), make.weight(3, 4))
    shape = make.pick([(4,), (1,), (), (1, 4), (rows, 1), (rows, 4), (1, 1, 4)])
    return make.case(call("multiply", product, make.weight(*shape)))


def _scaled_data(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x * s) @ w = x @ (s w)."""
    for number, product in layers(graph, "matmul"):
        data, weight = product.children
        if graph.type(weight).rank != 2:
            continue
        for inner in graph.named_in(data, "multiply"):
            for source, scale in with_weight(graph, inner):
                rank, shape = graph.type(data).rank, graph.shape(scale)
                if graph.shape(source) != graph.shape(data):
                    continue
                if not when("one for each column", varies_along(shape, rank) <= {rank - 1}):
                    continue
                rows = graph.shape(weight)[0]
                factor = per_axis(scale, shape, (rows, 1))
                scaled = call("multiply", weight, factor)
                yield Equality(number, call("matmul", source, scaled))


def _scaled_data_case(make: CaseMaker) -> Case:
    shape = make.pick([(3,), (1,), (), (1, 3), (3, 1)])
    inner = call("multiply", make.input(3, 3), make.weight(*shape))
    return make.case(call("matmul", inner, make.weight(3, 4)))


def _matmuls_of_shifted(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x + t) @ w = x @ w + t @ w."""
    for number, product in layers(graph, "matmul"):
        data, weight = product.children
        for inner in graph.named_in(data, "add"):
            for source, shift in with_weight(graph, inner):
                if graph.shape(source) != graph.shape(data):
                    continue
                shape = graph.shape(shift)
                if not shape or shape[-1] != graph.shape(data)[-1]:
                    continue
                # Rows of the shift would meet the batches of a stack of matrices.
                if not when("matrix", graph.type(weight).rank == 2):
                    continue
                moved = call("matmul", source, weight)
                yield Equality(number, call("add", moved, call("matmul", shift, weight)))


def _matmul_of_shifted_case(make: CaseMaker) -> Case:
    inner = call("add", make.input(2, 3), make.weight(*make.pick([(3,), (1, 3), (2, 3), (2, 1)])))
    weight = make.weight(*make.pick([(3, 4), (3, 4), (3, 4), (2, 3, 4)]))
    return make.case(call("matmul", inner, weight))


def _scalars_of_products(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x @ y) * c = (x * c) @ y for a scalar, which may then find a weight, as in attention."""
    for number, node in graph.named("multiply"):
        for value, scale in with_weight(graph, node):
            if not when("of its shape", graph.shape(value) == graph.shape(number)):
                continue
            for product in graph.named_in(value, "matmul"):
                left, right = product.children
                if graph.is_weight(right) or graph.is_weight(left):
                    continue
                type_ = graph.type(scale)
                if not when("one value", type_.size == 1) or type_.rank > graph.type(left).rank:
                    continue
                yield Equality(number, call("matmul", call("multiply", left, scale), right))


def _scalar_of_product_case(make: CaseMaker) -> Case:
    right = make.pick([(3, 3), (3, 3), (3,)])
    product = call("matmul", make.input(3, 3), make.input(*right))
    shape = make.pick([(), (1,), (1, 1), (3,), (3, 1)])
    return make.case(call("multiply", product, make.weight(*shape)))


FOLD_LAYERS: tuple[Rule, ...] = (
    _rule(
        "scale after convolution",
        _scaled_convolutions,
        _scaled_convolution_case,
        "of its shape",
        "one for each channel",
    ),
    _rule(
        "scale before convolution",
        _convolutions_of_scaled,
        partial(_convolution_of, "multiply"),
        "one for each channel",
    ),
    _rule(
        "shift before convolution",
        _convolutions_of_shifted,
        partial(_convolution_of, "add"),
        "one for each channel",
        "one group",
        "no padding",
    ),
    _rule(
        "scale after product",
        _scaled_matmuls,
        _scaled_matmul_case,
        "of its shape",
        "one for each column",
    ),
    _rule("scale before product", _scaled_data, _scaled_data_case, "one for each column"),
    _rule("shift before product", _matmuls_of_shifted, _matmul_of_shifted_case, "matrix"),
    _rule(
        "scalar of a product",
        _scalars_of_products,
        _scalar_of_product_case,
        "of its shape",
        "one value",
    ),
)
"""Rules by which arithmetic by weights becomes part of a layer's weight."""

# SPDX-License-Identifier: Apache-2.0
"""Linear: pools, convolutions and factors of channels change places. Imports no TVM."""

from collections.abc import Iterator
from functools import partial

from ..cases import Case, CaseMaker
from ..equality.egraph import EGraph
from ..equality.language import Node, Term
from .draws import random_pool
from .matching import layers, weighted_in, with_weight
from .rule import Conditions, Equality, Rule, declare
from .terms import axes_of, call, kernel_extents

_rule = partial(declare, "linear")


def _is_pointwise(graph: EGraph, when: Conditions, conv: Node) -> bool:
    op = conv.operator
    return (
        when("one weight", kernel_extents(graph, op, conv.children[1]) == (1, 1))
        and when("stride one", op.get("strides") == (1, 1))
        and when("no padding", not any(op.get("padding")))
    )


def _pools_before(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """avgpool(conv1x1(x)) = conv1x1(avgpool(x))."""
    for number, pool in graph.named("avg_pool2d"):
        for conv in weighted_in(graph, pool.children[0], "conv2d"):
            same = pool.operator.get("layout") == conv.operator.get("layout")
            if _is_pointwise(graph, when, conv) and when("one layout", same):
                pooled = Term(pool.operator, (conv.children[0],))
                yield Equality(number, Term(conv.operator, (pooled, conv.children[1])))


def _pools_after(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv1x1(avgpool(x)) = avgpool(conv1x1(x))."""
    for number, conv in layers(graph, "conv2d"):
        for pool in graph.named_in(conv.children[0], "avg_pool2d"):
            same = pool.operator.get("layout") == conv.operator.get("layout")
            if _is_pointwise(graph, when, conv) and when("one layout", same):
                moved = Term(conv.operator, (pool.children[0], conv.children[1]))
                yield Equality(number, Term(pool.operator, (moved,)))


def _pooled_case(pool_first: bool, make: CaseMaker) -> Case:
    layout = make.pick(["NCHW", "NHWC"])
    other = layout if make.chance(0.8) else make.pick(["NCHW", "NHWC"])
    extents = {"N": 4, "C": 4, "H": 6, "W": 6}
    data = make.input(*[extents[letter] for letter in layout])

    def conv(source: Term) -> Term:
        plain: dict[str, object] = {"strides": (1, 1), "padding": (0, 0, 0, 0)}
        if make.chance(0.3):
            plain = {
                "strides": make.pick([(1, 1), (2, 2)]),
                "padding": make.pick([(1,) * 4, (0,) * 4]),
            }
        kernel = make.pick([(1, 1), (1, 1), (1, 1), (3, 3), (2, 2)])
        weight = make.weight(4, 4, *kernel)
        options = plain | {"dilation": (1, 1), "groups": 1, "kernel_layout": "OIHW"}
        return call("conv2d", source, weight, layout=layout, **options)

    if pool_first:
        return make.case(conv(random_pool(make, "avg_pool2d", data, other)))
    return make.case(random_pool(make, "avg_pool2d", conv(data), other))


def _shifted_pools(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """pool(x + t) = pool(x) + t, for averages and for maxima."""
    for number, node in graph.named("avg_pool2d", "max_pool2d"):
        op, axes = node.operator, axes_of(node.operator)
        for inner in graph.named_in(node.children[0], "add"):
            for value, shift in with_weight(graph, inner):
                if graph.shape(value) != graph.shape(node.children[0]):
                    continue
                if not when("one for each channel", _is_per_channel(graph, shift, axes.channel)):
                    continue
                counted = op.get("count_include_pad") and any(op.get("padding"))
                fits = op.name == "max_pool2d" or not counted
                if when("padding is not counted", fits):
                    yield Equality(number, call("add", Term(op, (value,)), shift))


def _scaled_pools(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """avgpool(x * s) = avgpool(x) * s."""
    for number, node in graph.named("avg_pool2d", "max_pool2d"):
        op, axes = node.operator, axes_of(node.operator)
        if not when("averages", op.name == "avg_pool2d"):
            continue
        for inner in graph.named_in(node.children[0], "multiply"):
            for value, scale in with_weight(graph, inner):
                if graph.shape(value) != graph.shape(node.children[0]):
                    continue
                if when("one for each channel", _is_per_channel(graph, scale, axes.channel)):
                    yield Equality(number, call("multiply", Term(op, (value,)), scale))


def _is_per_channel(graph: EGraph, number: int, channel: int) -> bool:
    shape = (1,) * (4 - graph.type(number).rank) + graph.shape(number)
    return all(extent == 1 or axis == channel for axis, extent in enumerate(shape))


def _pool_of(name: str, make: CaseMaker) -> Case:
    layout = make.pick(["NCHW", "NHWC"])
    extents = {"N": 1, "C": 3, "H": 5, "W": 5}
    data = make.input(*[extents[letter] for letter in layout])
    letters = make.pick(["C", "C", "C", "H", "CHW", ""])
    shape = tuple(extents[letter] if letter in letters else 1 for letter in layout)
    inner = call(name, data, make.weight(*shape))
    kind = make.pick(["avg_pool2d", "avg_pool2d", "max_pool2d"])
    return make.case(random_pool(make, kind, inner, layout, strides=(1, 1), pool_size=(3, 3)))


_POINTWISE = ("one weight", "stride one", "no padding", "one layout")

LINEAR_POOLS: tuple[Rule, ...] = (
    _rule("pool before convolution", _pools_before, partial(_pooled_case, False), *_POINTWISE),
    _rule("pool after convolution", _pools_after, partial(_pooled_case, True), *_POINTWISE),
    _rule(
        "shift through pool",
        _shifted_pools,
        partial(_pool_of, "add"),
        "one for each channel",
        "padding is not counted",
    ),
    _rule(
        "scale through pool",
        _scaled_pools,
        partial(_pool_of, "multiply"),
        "averages",
        "one for each channel",
    ),
)
"""Rules of pools, by linearity."""

# SPDX-License-Identifier: Apache-2.0
"""Linear rules: sums of layers merge, and pools and factors are reordered. Imports no TVM."""

from collections.abc import Iterator
from functools import partial

from ..equality.egraph import EGraph
from ..equality.language import Node, Term
from .rule import Conditions, Equality, Rule, declare
from .terms import (
    along,
    axes_of,
    call,
    changed_data,
    kernel_extents,
    layers,
    sums,
    varies_along,
    weighted_in,
    with_weight,
    within,
)

_rule = partial(declare, "linear")

_POINTWISE = ("one weight", "stride one", "no padding", "one layout")


def _change_places(graph: EGraph, when: Conditions, conv: Node, pool: Node) -> bool:
    op = conv.operator
    return (
        when("one weight", kernel_extents(graph, op, conv.children[1]) == (1, 1))
        and when("stride one", op.get("strides") == (1, 1))
        and when("no padding", not any(op.get("padding")))
        and when("one layout", pool.operator.get("layout") == op.get("layout"))
    )


def _pools_before(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """avgpool(conv1x1(x)) = conv1x1(avgpool(x))."""
    for number, pool in graph.named("avg_pool2d"):
        for conv in weighted_in(graph, pool.children[0], "conv2d"):
            if _change_places(graph, when, conv, pool):
                pooled = Term(pool.operator, (conv.children[0],))
                yield Equality(number, Term(conv.operator, (pooled, conv.children[1])))


def _pools_after(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv1x1(avgpool(x)) = avgpool(conv1x1(x))."""
    for number, conv, pool in within(graph, layers(graph, "conv2d"), "avg_pool2d"):
        if _change_places(graph, when, conv, pool):
            moved = Term(conv.operator, (pool.children[0], conv.children[1]))
            yield Equality(number, Term(pool.operator, (moved,)))


def _changed_pools(name: str, graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """pool(x + t) = pool(x) + t for average and max pools; avgpool(x * s) = avgpool(x) * s."""
    pools = graph.named("avg_pool2d", "max_pool2d")
    for number, pool, value, weight in changed_data(graph, pools, name):
        op = pool.operator
        is_average = op.name == "avg_pool2d"
        counted = is_average and op.get("count_include_pad") and any(op.get("padding"))
        condition = ("padding is not counted", not counted)
        if name == "multiply":
            condition = ("averages", is_average)
        one_each = varies_along(graph.shape(weight), 4) <= {axes_of(op).channel}
        if when(*condition) and when("one for each channel", one_each):
            yield Equality(number, call(name, Term(op, (value,)), weight))


def _identities(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv(x, w) + x * s = conv(x, w + s * identity kernel)."""
    for number, node in graph.named("add"):
        for layer, branch in (node.children, node.children[::-1]):
            for conv in weighted_in(graph, layer, "conv2d"):
                data = conv.children[0]
                for scale in _scales_to(graph, branch, data):
                    term = _with_identity(graph, when, layer, branch, conv, scale)
                    if term is not None:
                        yield Equality(number, term)


def _scales_to(graph: EGraph, branch: int, data: int) -> Iterator[int | None]:
    """The factors s for which a class equals data * s; None if it equals the data."""
    if graph.find(branch) == graph.find(data):
        yield None
    for node in graph.named_in(branch, "multiply"):
        for value, scale in with_weight(graph, node):
            if graph.find(value) == graph.find(data):
                yield scale


def _with_identity(
    graph: EGraph, when: Conditions, layer: int, branch: int, conv: Node, scale: int | None
) -> Term | None:
    data, weight = conv.children
    op, axes = conv.operator, axes_of(conv.operator)
    extents = kernel_extents(graph, op, weight)
    centers = [extent // 2 for extent in extents]
    reach = tuple(center * step for center, step in zip(centers, op.get("dilation")))
    # With a stride, padding can restore the image size, but the output is only a sample.
    if not when("stride one", op.get("strides") == (1, 1)):
        return None
    if not when("centered", op.get("padding")[:2] == reach):
        return None
    if not when("equal shapes", graph.shape(layer) == graph.shape(data)):
        return None
    if not when("one group", op.get("groups") == 1):
        return None
    shape = graph.shape(weight)
    outputs, inputs = shape[axes.outputs], shape[axes.inputs]
    matrix = call("eye", shape=(outputs, inputs), dtype=graph.type(weight).dtype)
    if not when("of its shape", graph.shape(branch) == graph.shape(data)):
        return None
    if scale is not None:
        scales = graph.shape(scale)
        if graph.type(scale).size != 1:
            wanted = along(axes.channel, graph.shape(data)[axes.channel], 4)
            if not when("one for each channel", scales == wanted):
                return None
        matrix = call("multiply", matrix, call("reshape", scale, shape=(graph.type(scale).size,)))
    wide, widths = [1] * 4, [(0, 0)] * 4
    # The matrix is diagonal, so the order of its axes does not matter.
    wide[axes.outputs], wide[axes.inputs] = outputs, inputs
    for axis, center, extent in zip(axes.kernel, centers, extents):
        widths[axis] = (center, extent - 1 - center)
    kernel = call("reshape", matrix, shape=tuple(wide))
    kernel = call("pad", kernel, widths=tuple(widths), value=0.0)
    return Term(op, (data, call("add", weight, kernel)))


def _joined(left: Node, right: Node, shared: int) -> Term:
    """One layer for the sum of two: on the shared operand and the sum of the other operands."""
    children = list[Term | int](left.children)
    children[1 - shared] = call("add", left.children[1 - shared], right.children[1 - shared])
    return Term(left.operator, tuple(children))


def _sums_of_convolutions(shared: int, graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv(x, a) + conv(x, b) = conv(x, a + b), and conv(x, w) + conv(y, w) = conv(x + y, w)."""
    for number, left, right in sums(graph, "conv2d", shared):
        if not when("equal attributes", left.operator == right.operator):
            continue
        one, other = (graph.shape(layer.children[1 - shared]) for layer in (left, right))
        if when("equal shapes", one == other):
            yield Equality(number, _joined(left, right, shared))


def _sums_of_products(shared: int, graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """x @ a + x @ b = x @ (a + b), and x @ w + y @ w = (x + y) @ w."""
    for number, left, right in sums(graph, "matmul", shared):
        ranks = {graph.type(layer.children[1]).rank for layer in (left, right)}
        # With a stack of matrices, the data's rows would align with the batch axes.
        if when("matrices", ranks == {2}):
            yield Equality(number, _joined(left, right, shared))


def _enlarged(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """Pad a kernel with zeros to the size of a sibling's kernel, so that both can be merged."""
    for number, small in layers(graph, "conv2d"):
        data, weight = small.children
        for _, large in graph.users(data):
            if large.operator.name != "conv2d" or large.children[0] != data:
                continue
            one, other = small.operator, large.operator
            extents = kernel_extents(graph, one, weight)
            wanted = kernel_extents(graph, other, large.children[1])
            rings = [(w - e) // 2 for w, e in zip(wanted, extents)]
            if min(rings) < 0 or max(rings) == 0:
                continue
            dilation = other.get("dilation")
            top, left, bottom, right = one.get("padding")
            more = [ring * step for ring, step in zip(rings, dilation)]
            grown = one.replaced(
                padding=(top + more[0], left + more[1], bottom + more[0], right + more[1]),
                dilation=dilation,
                kernel_layout=other.get("kernel_layout"),
            )
            if grown != other or one.get("kernel_layout") != other.get("kernel_layout"):
                continue
            same = all(e == 1 or d == s for e, d, s in zip(extents, one.get("dilation"), dilation))
            if not when("equal dilation, or one weight", same):
                continue
            widths = [(0, 0)] * 4
            for axis, ring in zip(axes_of(one).kernel, rings):
                widths[axis] = (ring, ring)
            padded = call("pad", weight, widths=tuple(widths), value=0.0)
            yield Equality(number, Term(grown, (data, padded)))


def _associated(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x @ a) @ b = x @ (a @ b) for two weights a and b."""
    for number, outer in layers(graph, "matmul"):
        for inner in weighted_in(graph, outer.children[0], "matmul"):
            a, b = inner.children[1], outer.children[1]
            if when("matrices", graph.type(a).rank == graph.type(b).rank == 2):
                yield Equality(number, call("matmul", inner.children[0], call("matmul", a, b)))


def _dissociated(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """x @ (a @ b) = (x @ a) @ b for two weights a and b."""
    for number, outer in layers(graph, "matmul"):
        for product in graph.named_in(outer.children[1], "matmul"):
            a, b = product.children
            if when("matrices", graph.type(a).rank == graph.type(b).rank == 2):
                yield Equality(number, call("matmul", call("matmul", outer.children[0], a), b))


def _common_factors(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """x * s + x * t = x * (s + t)."""
    for number, node in graph.named("add"):
        for left in graph.named_in(node.children[0], "multiply"):
            for right in graph.named_in(node.children[1], "multiply"):
                if left == right:
                    continue
                for x, s in with_weight(graph, left):
                    for y, t in with_weight(graph, right):
                        if when("of one value", graph.find(x) == graph.find(y)):
                            yield Equality(number, call("multiply", x, call("add", s, t)))


LINEAR: tuple[Rule, ...] = (
    _rule("sum of kernels", partial(_sums_of_convolutions, 0), "equal attributes", "equal shapes"),
    _rule("sum of images", partial(_sums_of_convolutions, 1), "equal attributes", "equal shapes"),
    _rule("sum of right sides", partial(_sums_of_products, 0), "matrices"),
    _rule("sum of left sides", partial(_sums_of_products, 1), "matrices"),
    _rule("kernel like a sibling's", _enlarged, "equal dilation, or one weight"),
    _rule(
        "identity branch",
        _identities,
        "stride one",
        "centered",
        "equal shapes",
        "one group",
        "of its shape",
        "one for each channel",
    ),
    _rule("product of weights", _associated, "matrices"),
    _rule("product of factors", _dissociated, "matrices"),
    _rule("common factor", _common_factors, "of one value"),
    _rule("pool before convolution", _pools_before, *_POINTWISE),
    _rule("pool after convolution", _pools_after, *_POINTWISE),
    _rule(
        "shift through pool",
        partial(_changed_pools, "add"),
        "one for each channel",
        "padding is not counted",
    ),
    _rule(
        "scale through pool",
        partial(_changed_pools, "multiply"),
        "averages",
        "one for each channel",
    ),
)
"""Rules that hold by linearity."""

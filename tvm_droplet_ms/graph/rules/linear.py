# SPDX-License-Identifier: Apache-2.0
"""Linear: sums of layers, and layers of sums, become fewer layers. Imports no TVM."""

from collections.abc import Iterator
from functools import partial

from ..cases import Case, CaseMaker
from ..equality.egraph import EGraph
from ..equality.language import Term
from .draws import image
from .identity_branches import identities, identity_case
from .matching import layers, weighted_in, with_weight
from .rule import Conditions, Equality, Rule, declare
from .terms import axes_of, call, kernel_extents

_rule = partial(declare, "linear")


def _sums_of_kernels(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv(x, a) + conv(x, b) = conv(x, a + b)."""
    for number, node in graph.named("add"):
        for left in weighted_in(graph, node.children[0], "conv2d"):
            for right in weighted_in(graph, node.children[1], "conv2d"):
                if left.children[0] != right.children[0] or left == right:
                    continue
                if not when("equal attributes", left.operator == right.operator):
                    continue
                a, b = left.children[1], right.children[1]
                if when("equal kernels", graph.shape(a) == graph.shape(b)):
                    kernel = call("add", a, b)
                    yield Equality(number, Term(left.operator, (left.children[0], kernel)))


def _sum_of_kernels_case(make: CaseMaker) -> Case:
    data = image(make, "NCHW", 2, low=3, high=5)
    kinds = [((3, 3), 1, 1), ((3, 3), 2, 2), ((1, 1), 0, 1), ((3, 3), 0, 1)]
    kind = make.pick(kinds)
    branches = []
    for kernel, padding, dilation in (kind, kind if make.chance(0.5) else make.pick(kinds)):
        options = {"padding": (padding,) * 4, "dilation": (dilation,) * 2, "groups": 1}
        weight = make.weight(3, 2, *kernel)
        layouts = {"layout": "NCHW", "kernel_layout": "OIHW", "strides": (1, 1)}
        branches.append(call("conv2d", data, weight, **options, **layouts))
    return make.case(call("add", *branches))


def _sums_of_data(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv(x, w) + conv(y, w) = conv(x + y, w)."""
    for number, node in graph.named("add"):
        for left in weighted_in(graph, node.children[0], "conv2d"):
            for right in weighted_in(graph, node.children[1], "conv2d"):
                if left.children[1] != right.children[1] or left == right:
                    continue
                if not when("equal attributes", left.operator == right.operator):
                    continue
                x, y = left.children[0], right.children[0]
                if when("equal images", graph.shape(x) == graph.shape(y)):
                    data = call("add", x, y)
                    yield Equality(number, Term(left.operator, (data, left.children[1])))


def _sum_of_data_case(make: CaseMaker) -> Case:
    weight = make.weight(3, 2, 3, 3)
    extents = [(4, 4), (4, 4), (1, 1)]
    branches = []
    for extent in (make.pick(extents), make.pick(extents)):
        padding, dilation = make.pick([(1, 1), (1, 1), (2, 2)])
        options = {"padding": (padding,) * 4, "dilation": (dilation,) * 2, "groups": 1}
        layouts = {"layout": "NCHW", "kernel_layout": "OIHW", "strides": (1, 1)}
        data = make.input(1, 2, *extent)
        branches.append(call("conv2d", data, weight, **options, **layouts))
    return make.case(call("add", *branches))


def _sums_of_products(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """x @ a + x @ b = x @ (a + b)."""
    for number, node in graph.named("add"):
        for left in weighted_in(graph, node.children[0], "matmul"):
            for right in weighted_in(graph, node.children[1], "matmul"):
                if left.children[0] != right.children[0] or left == right:
                    continue
                a, b = left.children[1], right.children[1]
                if when("matrices", graph.type(a).rank == graph.type(b).rank == 2):
                    yield Equality(number, call("matmul", left.children[0], call("add", a, b)))


def _sum_of_products_case(make: CaseMaker) -> Case:
    data = make.input(2, 2)
    weights = [make.weight(*make.pick([(2, 2), (2, 2), (2,)])) for _ in range(2)]
    return make.case(call("add", *[call("matmul", data, weight) for weight in weights]))


def _products_of_sums(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """x @ w + y @ w = (x + y) @ w."""
    for number, node in graph.named("add"):
        for left in weighted_in(graph, node.children[0], "matmul"):
            for right in weighted_in(graph, node.children[1], "matmul"):
                if left.children[1] != right.children[1] or left == right:
                    continue
                # Rows of the data would meet the batches of a stack of matrices.
                if not when("matrix", graph.type(left.children[1]).rank == 2):
                    continue
                data = call("add", left.children[0], right.children[0])
                yield Equality(number, call("matmul", data, left.children[1]))


def _product_of_sum_case(make: CaseMaker) -> Case:
    weight = make.weight(*make.pick([(3, 4), (3, 4), (3, 4), (2, 3, 4)]))
    inputs = [make.input(*make.pick([(3,), (2, 3), (1, 3), (2, 2, 3)])) for _ in range(2)]
    return make.case(call("add", *[call("matmul", data, weight) for data in inputs]))


def _enlarged(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """A kernel grows by zeros to the size of a sibling's, so that both can be merged."""
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


def _enlarged_case(make: CaseMaker) -> Case:
    data = image(make, "NHWC", 2)
    step = make.pick([1, 1, 2])
    shared = {"strides": make.pick([(1, 1), (2, 2)]), "groups": 1, "layout": "NHWC"}
    small = make.pick([(1, 1), (1, 3)])
    kernels = [(small, make.pick([1, 1, 2])), ((3, 3), step)]
    roots = []
    for kernel, dilation in kernels:
        rings = [(3 - extent) // 2 for extent in kernel]
        padding = tuple(2 - ring * step for ring in rings) * 2
        weight = make.weight(*kernel, 2, 2)
        options = {"padding": padding, "dilation": (dilation,) * 2, "kernel_layout": "HWIO"}
        roots.append(call("conv2d", data, weight, **options, **shared))
    return make.case(*roots)


def _associated(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """(x @ a) @ b = x @ (a @ b), of two weights."""
    for number, outer in layers(graph, "matmul"):
        for inner in weighted_in(graph, outer.children[0], "matmul"):
            a, b = inner.children[1], outer.children[1]
            if when("matrices", graph.type(a).rank == graph.type(b).rank == 2):
                yield Equality(number, call("matmul", inner.children[0], call("matmul", a, b)))


def _dissociated(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """x @ (a @ b) = (x @ a) @ b, of two weights."""
    for number, outer in layers(graph, "matmul"):
        for product in graph.named_in(outer.children[1], "matmul"):
            a, b = product.children
            if when("matrices", graph.type(a).rank == graph.type(b).rank == 2):
                yield Equality(number, call("matmul", call("matmul", outer.children[0], a), b))


def _associated_case(make: CaseMaker) -> Case:
    if make.chance(0.4):
        inner = call("matmul", make.input(2, 4, 4), make.weight(4))
        return make.case(call("matmul", inner, make.weight(4, 4)))
    inner = call("matmul", make.input(*make.pick([(2, 3), (2, 2, 3)])), make.weight(3, 5))
    return make.case(call("matmul", inner, make.weight(5, 4)))


def _dissociated_case(make: CaseMaker) -> Case:
    if make.chance(0.4):
        product = call("matmul", make.weight(4), make.weight(4, 4))
        return make.case(call("matmul", make.input(2, 4, 4), product))
    product = call("matmul", make.weight(3, 5), make.weight(5, 4))
    return make.case(call("matmul", make.input(*make.pick([(2, 3), (2, 2, 3)])), product))


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


def _common_factor_case(make: CaseMaker) -> Case:
    data = make.input(2, 3)
    other = data if make.chance(0.7) else make.input(2, 3)
    shapes = [(3,), (2, 1), (1,)]
    left = call("multiply", data, make.weight(*make.pick(shapes)))
    right = call("multiply", make.weight(*make.pick(shapes)), other)
    return make.case(call("add", left, right))


LINEAR: tuple[Rule, ...] = (
    _rule(
        "sum of kernels",
        _sums_of_kernels,
        _sum_of_kernels_case,
        "equal attributes",
        "equal kernels",
    ),
    _rule("sum of images", _sums_of_data, _sum_of_data_case, "equal attributes", "equal images"),
    _rule("sum of right sides", _sums_of_products, _sum_of_products_case, "matrices"),
    _rule("sum of left sides", _products_of_sums, _product_of_sum_case, "matrix"),
    _rule("kernel like a sibling's", _enlarged, _enlarged_case, "equal dilation, or one weight"),
    _rule(
        "identity branch",
        identities,
        identity_case,
        "centred",
        "equal shapes",
        "one group",
        "of its shape",
        "one for each channel",
    ),
    _rule("product of weights", _associated, _associated_case, "matrices"),
    _rule("product of factors", _dissociated, _dissociated_case, "matrices"),
    _rule("common factor", _common_factors, _common_factor_case, "of one value"),
)
"""Rules by linearity."""

# SPDX-License-Identifier: Apache-2.0
"""Move: pads, concatenations and transposes go into the layers behind them. Imports no TVM."""

from collections.abc import Iterator
from functools import partial

from ..cases import Case, CaseMaker
from ..equality.egraph import EGraph
from ..equality.language import Term
from .matching import layers
from .rule import Conditions, Equality, Rule, declare
from .terms import Part, axes_of, call, concat, cut, permute, total

_rule = partial(declare, "move")


def _pads_into_convolution(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv(pad(x), w) = conv(x, w) of more padding."""
    for number, conv in layers(graph, "conv2d"):
        op, axes = conv.operator, axes_of(conv.operator)
        for pad in graph.named_in(conv.children[0], "pad"):
            widths = pad.operator.get("widths")
            others = [pair for axis, pair in enumerate(widths) if axis not in axes.image]
            if not when("of zeros", pad.operator.get("value") == 0):
                continue
            if not when("of the image", not any(map(any, others))):
                continue
            (top, bottom), (left, right) = (widths[axis] for axis in axes.image)
            more = zip(op.get("padding"), (top, left, bottom, right), strict=True)
            padded = op.replaced(padding=tuple(old + new for old, new in more))
            yield Equality(number, Term(padded, (pad.children[0], conv.children[1])))


def _pad_case(make: CaseMaker) -> Case:
    layout = make.pick(["NCHW", "NHWC"])
    extents = {"N": 1, "C": 2, "H": 4, "W": 5}
    widths = {letter: (make.integer(0, 1), make.integer(0, 2)) for letter in "HW"}
    widths["N"] = make.pick([(0, 0), (0, 0), (0, 0), (1, 0)])
    data = make.input(*[extents[letter] for letter in layout])
    padded = call(
        "pad",
        data,
        widths=tuple(widths.get(letter, (0, 0)) for letter in layout),
        value=make.pick([0.0, 0.0, 0.0, 1.0]),
    )
    return make.case(_plain_convolution(make, padded, layout))


def _plain_convolution(make: CaseMaker, data: Term, layout: str, groups: int = 1) -> Term:
    padding = make.pick([(0, 0, 0, 0), (1, 0, 1, 1)])
    return call(
        "conv2d",
        data,
        make.weight(2 * groups, 2, 3, 3),
        strides=make.pick([(1, 1), (2, 1)]),
        padding=padding,
        dilation=(1, 1),
        groups=groups,
        layout=layout,
        kernel_layout="OIHW",
    )


def _convolutions_of_concat(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv([x y], w) = conv(x, w of x) + conv(y, w of y)."""
    for number, conv in layers(graph, "conv2d"):
        data, weight = conv.children
        op, axes = conv.operator, axes_of(conv.operator)
        for inner in graph.named_in(data, "concat"):
            # Of another axis, or of groups, the pieces of the weight would not fit.
            if inner.operator.get("axis") != axes.channel or op.get("groups") != 1:
                continue
            parts: list[Part] = []
            begin = 0
            for child in inner.children:
                extent = graph.shape(child)[axes.channel]
                piece = cut(weight, axes.inputs, begin, begin + extent)
                parts.append(Term(op, (child, piece)))
                begin += extent
            yield Equality(number, total(parts))


def _convolution_of_concat_case(make: CaseMaker) -> Case:
    layout = make.pick(["NCHW", "NHWC"])
    groups = make.pick([1, 1, 1, 2])
    axis = layout.index("C" if make.chance(0.8) else "H")
    extents = {"N": 1, "C": 2 * groups, "H": 4, "W": 5}
    shape = [extents[letter] for letter in layout]
    parts: list[Part] = []
    for extent in (shape[axis] // 2, shape[axis] - shape[axis] // 2):
        parts.append(make.input(*[extent if each == axis else e for each, e in enumerate(shape)]))
    return make.case(_plain_convolution(make, concat(parts, axis), layout, groups))


_LETTERS = "abcdefgh"


def _products_of_permuted(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """permute(x) @ permute(y) = one contraction, which reads both as they lie."""
    for number, product in graph.named("matmul"):
        left, right = product.children
        rank = graph.type(number).rank
        shapes = graph.shape(left), graph.shape(right)
        if rank < 3 or {len(shape) for shape in shapes} != {rank}:
            continue
        # NumPy's einsum broadcasts, Relax's may not.
        if shapes[0][:-2] != shapes[1][:-2]:
            continue
        batch = _LETTERS[: rank - 2]
        names = [batch + "xk", batch + "ky"]
        for first, one in _as_they_lie(graph, left, names[0]):
            for second, other in _as_they_lie(graph, right, names[1]):
                if (first, second) == (left, right):
                    continue
                subscripts = f"{one},{other}->{batch}xy"
                yield Equality(number, call("einsum", first, second, subscripts=subscripts))


def _as_they_lie(graph: EGraph, number: int, names: str) -> list[tuple[int, str]]:
    """A class, and what it is a transpose of, with the names of their axes."""
    found = [(number, names)]
    for node in graph.named_in(number, "permute_dims"):
        axes = node.operator.get("axes")
        source = [""] * len(axes)
        for axis, name in zip(axes, names, strict=True):
            source[axis] = name
        found.append((node.children[0], "".join(source)))
    return found


def _product_of_permuted_case(make: CaseMaker) -> Case:
    batch = make.pick([2, 2, 1])
    left: Term = make.input(batch, 3, 4)
    if make.chance(0.6):
        left = permute(make.input(3, batch, 4), (1, 0, 2))
    right: Term = make.input(2, 4, 5)
    if make.chance(0.6):
        right = permute(make.input(5, 2, 4), (1, 2, 0))
    return make.case(call("matmul", left, right))


def _permuted_einsums(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """permute(einsum(x, y)) = an einsum that writes its result in that order."""
    for number, node in graph.named("permute_dims"):
        axes = node.operator.get("axes")
        for inner in graph.named_in(node.children[0], "einsum"):
            operands, _, result = inner.operator.get("subscripts").partition("->")
            if len(result) != len(axes):
                continue
            order = "".join(result[axis] for axis in axes)
            changed = inner.operator.replaced(subscripts=f"{operands}->{order}")
            yield Equality(number, Term(changed, inner.children))


def _permuted_einsum_case(make: CaseMaker) -> Case:
    result = make.pick(["axy", "xay", "yxa"])
    product = call("einsum", make.input(2, 3, 4), make.input(4, 5), subscripts=f"axk,ky->{result}")
    return make.case(permute(product, make.pick([(0, 2, 1), (1, 0, 2), (2, 0, 1)])))


MOVE_LAYERS: tuple[Rule, ...] = (
    _rule(
        "pad into convolution",
        _pads_into_convolution,
        _pad_case,
        "of zeros",
        "of the image",
        exact=True,
    ),
    _rule("convolution of concat", _convolutions_of_concat, _convolution_of_concat_case),
    _rule("transposes into product", _products_of_permuted, _product_of_permuted_case),
    _rule("transpose into einsum", _permuted_einsums, _permuted_einsum_case, exact=True),
)
"""Rules by which layers take in what stands before them."""

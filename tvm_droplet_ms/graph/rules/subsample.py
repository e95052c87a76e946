# SPDX-License-Identifier: Apache-2.0
"""Subsample: strides move up through a network, so that less is computed. Imports no TVM."""

from collections.abc import Iterator
from functools import partial

from ..cases import Case, CaseMaker
from ..equality.egraph import EGraph
from ..equality.language import Node, Term
from .draws import image, random_convolution, random_pool
from .matching import layers
from .rule import Conditions, Equality, Rule, declare
from .terms import Part, axes_of, call, kernel_extents

_rule = partial(declare, "subsample")

_WHOLE = "of the whole image"


def _subsampled(
    part: Part, shape: tuple[int, ...], axes: tuple[int, int], strides: tuple[int, int]
) -> Term:
    """Every s-th row and t-th column of an image."""
    return call(
        "strided_slice",
        part,
        axes=axes,
        begin=(0, 0),
        end=tuple(shape[axis] for axis in axes),
        strides=strides,
    )


def _strides_of(
    graph: EGraph, when: Conditions, piece: Node, axes: tuple[int, int]
) -> tuple[int, int] | None:
    """The strides of a slice that takes every s-th row and t-th column. None: it does not."""
    op, shape = piece.operator, graph.shape(piece.children[0])
    taken = list(zip(op.get("axes"), op.get("begin"), op.get("end"), op.get("strides")))
    if not any(stride > 1 for *_, stride in taken):
        return None
    if any(axis not in axes for axis, *_ in taken):
        return None
    whole = all(begin == 0 and end == shape[axis] for axis, begin, end, _ in taken)
    if not when(_WHOLE, whole):
        return None
    strides = {axis: stride for axis, *_, stride in taken}
    return strides.get(axes[0], 1), strides.get(axes[1], 1)


def _product(one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, int]:
    return one[0] * other[0], one[1] * other[1]


def _is_pointwise(graph: EGraph, when: Conditions, conv: Node) -> bool:
    extents = kernel_extents(graph, conv.operator, conv.children[1])
    unpadded = not any(conv.operator.get("padding"))
    return when("one weight", extents == (1, 1)) and when("no padding", unpadded)


def _strides_up(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv1x1 of stride s = conv1x1 of every s-th row and column."""
    for number, conv in layers(graph, "conv2d"):
        op, data = conv.operator, conv.children[0]
        if max(op.get("strides")) > 1 and _is_pointwise(graph, when, conv):
            pieces = _subsampled(data, graph.shape(data), axes_of(op).image, op.get("strides"))
            yield Equality(number, Term(op.replaced(strides=(1, 1)), (pieces, conv.children[1])))


def _strides_up_case(make: CaseMaker) -> Case:
    layout = make.pick(["NCHW", "NHWC"])
    changes: dict[str, object] = {} if make.chance(0.4) else {"padding": (0, 0, 0, 0)}
    return make.case(random_convolution(make, image(make, layout, 2), 2, layout, 1, **changes))


def _strides_back(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv1x1 of every s-th row and column = conv1x1 of stride s."""
    for number, conv in layers(graph, "conv2d"):
        op = conv.operator
        for piece in graph.named_in(conv.children[0], "strided_slice"):
            if not _is_pointwise(graph, when, conv):
                continue
            strides = _strides_of(graph, when, piece, axes_of(op).image)
            if strides is not None:
                strided = op.replaced(strides=_product(strides, op.get("strides")))
                yield Equality(number, Term(strided, (piece.children[0], conv.children[1])))


def random_subsample(make: CaseMaker, part: Term, shape: tuple[int, ...], layout: str) -> Term:
    """A random slice with strides, mostly of the whole image."""
    axes = make.pick([(layout.index("H"), layout.index("W")), (layout.index("W"),)])
    begin = [0 if make.chance(0.8) else 1 for _ in axes]
    end = [shape[axis] - (0 if make.chance(0.8) else 1) for axis in axes]
    strides = tuple(make.pick([1, 2, 2, 3]) for _ in axes)
    return call(
        "strided_slice", part, axes=axes, begin=tuple(begin), end=tuple(end), strides=strides
    )


def _strides_back_case(make: CaseMaker) -> Case:
    layout = make.pick(["NCHW", "NHWC"])
    data = image(make, layout, 2, low=7, high=9)
    pieces = random_subsample(make, data, data.operator.get("shape"), layout)
    kind = make.pick(["kernel", "padding", "", "", ""])
    extent = 2 if kind == "kernel" else 1
    options: dict[str, object] = {
        "strides": make.pick([(1, 1), (2, 2)]),
        "padding": (1, 1, 1, 1) if kind == "padding" else (0, 0, 0, 0),
        "dilation": (1, 1),
        "groups": 1,
        "layout": layout,
        "kernel_layout": "OIHW",
    }
    return make.case(call("conv2d", pieces, make.weight(2, 2, extent, extent), **options))


def _into_layers(name: str, graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """Every s-th row and column of a layer of stride t = the layer of stride s t."""
    for number, piece in graph.named("strided_slice"):
        for layer in graph.named_in(piece.children[0], name):
            op = layer.operator
            strides = _strides_of(graph, when, piece, axes_of(op).image)
            if strides is None:
                continue
            if name != "conv2d" and not when("not rounded up", not op.get("ceil_mode")):
                continue
            strided = op.replaced(strides=_product(strides, op.get("strides")))
            yield Equality(number, Term(strided, layer.children))


def _of_convolution_case(make: CaseMaker) -> Case:
    layout = make.pick(["NCHW", "NHWC"])
    extents = {"N": 1, "C": 2, "H": 9, "W": 9}
    data = make.input(*[extents[letter] for letter in layout])
    options = {
        "strides": make.pick([(1, 1), (2, 2)]),
        "padding": (1, 1, 1, 1),
        "dilation": (1, 1),
        "groups": make.pick([1, 2]),
        "layout": layout,
        "kernel_layout": "OIHW",
    }
    weight = make.weight(2, 2 // int(str(options["groups"])), 3, 3)
    conv = call("conv2d", data, weight, **options)
    side = 9 if options["strides"] == (1, 1) else 5
    sizes = {"N": 1, "C": 2, "H": side, "W": side}
    shape = tuple(sizes[letter] for letter in layout)
    return make.case(random_subsample(make, conv, shape, layout))


def _of_pool_case(name: str, make: CaseMaker) -> Case:
    layout = make.pick(["NCHW", "NHWC"])
    ceil = make.chance(0.3)
    side = make.pick([8, 9])
    extents = {"N": 1, "C": 2, "H": side, "W": side}
    data = make.input(*[extents[letter] for letter in layout])
    options: dict[str, object] = {
        "pool_size": (3, 3),
        "strides": (2, 2),
        "padding": (0, 0, 0, 0),
        "ceil_mode": ceil,
        "count_include_pad": False,
    }
    pooled = random_pool(make, name, data, layout, **options)
    out = -(-(side - 3) // 2) + 1 if ceil else (side - 3) // 2 + 1
    sizes = {"N": 1, "C": 2, "H": out, "W": out}
    shape = tuple(sizes[letter] for letter in layout)
    return make.case(random_subsample(make, pooled, shape, layout))


SUBSAMPLE: tuple[Rule, ...] = (
    _rule("stride up", _strides_up, _strides_up_case, "one weight", "no padding", exact=True),
    _rule(
        "stride back",
        _strides_back,
        _strides_back_case,
        "one weight",
        "no padding",
        _WHOLE,
        exact=True,
    ),
    _rule(
        "stride into convolution",
        partial(_into_layers, "conv2d"),
        _of_convolution_case,
        _WHOLE,
        exact=True,
    ),
    _rule(
        "stride into average",
        partial(_into_layers, "avg_pool2d"),
        partial(_of_pool_case, "avg_pool2d"),
        _WHOLE,
        "not rounded up",
        exact=True,
    ),
    _rule(
        "stride into maximum",
        partial(_into_layers, "max_pool2d"),
        partial(_of_pool_case, "max_pool2d"),
        _WHOLE,
        "not rounded up",
        exact=True,
    ),
)
"""Rules that move strides."""

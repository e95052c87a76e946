# SPDX-License-Identifier: Apache-2.0
"""Convolutions beside a branch that leaves or scales their data. Imports no TVM."""

from collections.abc import Iterator

from ..cases import Case, CaseMaker
from ..equality.egraph import EGraph
from ..equality.language import Node, Term
from .matching import weighted_in, with_weight
from .rule import Conditions, Equality
from .terms import axes_of, call, kernel_extents


def identities(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv(x, w) + x * s = conv(x, w + the identity's kernel times s)."""
    for number, node in graph.named("add"):
        for layer, branch in (node.children, node.children[::-1]):
            for conv in weighted_in(graph, layer, "conv2d"):
                data = conv.children[0]
                for scale in _scales_to(graph, branch, data):
                    term = _with_identity(graph, when, layer, branch, conv, scale)
                    if term is not None:
                        yield Equality(number, term)


def _scales_to(graph: EGraph, branch: int, data: int) -> Iterator[int | None]:
    """The factors that a class scales some data with; None for no factor."""
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
    centres = [extent // 2 for extent in extents]
    reach = tuple(centre * step for centre, step in zip(centres, op.get("dilation")))
    if not when("centred", op.get("padding")[:2] == reach):
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
            wanted = [1] * 4
            wanted[axes.channel] = graph.shape(data)[axes.channel]
            if not when("one for each channel", list(scales) == wanted):
                return None
        matrix = call("multiply", matrix, call("reshape", scale, shape=(graph.type(scale).size,)))
    wide, widths = [1] * 4, [(0, 0)] * 4
    # The matrix is diagonal: which of its axes is which does not matter.
    wide[axes.outputs], wide[axes.inputs] = outputs, inputs
    for axis, centre, extent in zip(axes.kernel, centres, extents):
        widths[axis] = (centre, extent - 1 - centre)
    kernel = call("reshape", matrix, shape=tuple(wide))
    kernel = call("pad", kernel, widths=tuple(widths), value=0.0)
    return Term(op, (data, call("add", weight, kernel)))


def identity_case(make: CaseMaker) -> Case:
    layout = make.pick(["NCHW", "NHWC"])
    extents = make.pick([{"H": 4, "W": 4}, {"H": 4, "W": 4}, {"H": 3, "W": 3}])
    extents |= {"N": 1, "C": 4}
    data = make.input(*[extents[letter] for letter in layout])
    groups = make.pick([1, 1, 1, 2])
    kernel, padding = make.pick(
        [((3, 3), (1, 1, 1, 1))] * 3 + [((3, 3), (0, 0, 2, 2)), ((1, 1), (0, 0, 0, 0))]
    )
    strides = make.pick([(1, 1), (1, 1), (1, 1), (4, 4)])
    sizes = {"O": 4, "I": 4 // groups, "H": kernel[0], "W": kernel[1]}
    kernel_layout = make.pick(["OIHW", "HWIO"])
    weight = make.weight(*[sizes[letter] for letter in kernel_layout])
    conv = call(
        "conv2d",
        data,
        weight,
        strides=strides,
        padding=padding,
        dilation=(1, 1),
        groups=groups,
        layout=layout,
        kernel_layout=kernel_layout,
    )
    if make.chance(0.4):
        return make.case(call("add", conv, data))
    shape = tuple(extents[letter] if letter == make.pick("CCH") else 1 for letter in layout)
    if make.chance(0.2):
        shape = (1,) * 5
    return make.case(call("add", conv, call("multiply", data, make.weight(*shape))))

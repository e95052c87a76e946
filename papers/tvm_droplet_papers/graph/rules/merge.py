# SPDX-License-Identifier: Apache-2.0
"""Merge rules: all sibling layers of a group become one layer at once. Imports no TVM."""

from collections.abc import Iterator
from functools import partial

from ..equality.egraph import EGraph
from ..equality.language import Node, Operator, Term
from .rule import Conditions, Equality, Rule, declare
from .terms import (
    Matched,
    Part,
    axes_of,
    call,
    concat,
    cut_all,
    kernel_extents,
    layers,
    permute,
    reshape,
    sums,
    weighted_in,
)

_rule = partial(declare, "merge")


def _is_superseded(graph: EGraph, number: int, node: Node) -> bool:
    """True if a user of a layer's result is equal to a layer of the same kind on the same data.

    Folding has made the original layer redundant. Merging it with others would only add cost.
    """
    name, data = node.operator.name, graph.find(node.children[0])
    return any(
        user != graph.find(number)
        and any(graph.find(each.children[0]) == data for each in graph.named_in(user, name))
        for user, _ in graph.users(number)
    )


def _is_merged(graph: EGraph, weight: int) -> bool:
    """True if a merge created this weight. Such weights are not merged again."""
    return bool(graph.named_in(weight, "concat"))


def _groups(graph: EGraph, name: str, shared: int) -> list[list[Matched]]:
    """Group layers by a shared operand. ``shared``: 0 for the data, 1 for the weight."""
    groups: dict[int, dict[int, Node]] = {}
    for number, node in layers(graph, name):
        if not _is_merged(graph, node.children[1]) and not _is_superseded(graph, number, node):
            groups.setdefault(graph.find(node.children[shared]), {}).setdefault(number, node)
    return [sorted(group.items()) for group in groups.values() if len(group) > 1]


def _products_of_one_value(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """x @ a, x @ b, ... = slices of x @ [a b ...]."""
    for group in _groups(graph, "matmul", 0):
        group = [(n, node) for n, node in group if graph.type(node.children[1]).rank == 2]
        if len(group) < 2:
            continue
        weights: list[Part] = [node.children[1] for _, node in group]
        columns = [graph.shape(node.children[1])[1] for _, node in group]
        data = group[0][1].children[0]
        merged = call("matmul", data, concat(weights, 1))
        rank = graph.type(group[0][0]).rank
        for (number, _), piece in zip(group, cut_all(merged, rank - 1, columns)):
            yield Equality(number, piece)


def _products_by_one_weight(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """x @ w, y @ w, ... = slices of [x; y; ...] @ w."""
    for group in _groups(graph, "matmul", 1):
        # A stack of matrices adds batch axes to the products that the data do not have.
        if not when("matrix", graph.type(group[0][1].children[1]).rank == 2):
            continue
        rank = graph.type(group[0][1].children[0]).rank
        group = [(n, m) for n, m in group if graph.type(m.children[0]).rank == rank]
        group = _independent(graph, _without_merged(graph, group))
        if rank < 2 or len(group) < 2:
            continue
        data: list[Part] = [node.children[0] for _, node in group]
        rows = [graph.shape(node.children[0])[rank - 2] for _, node in group]
        merged = call("matmul", concat(data, rank - 2), group[0][1].children[1])
        for (number, _), piece in zip(group, cut_all(merged, rank - 2, rows)):
            yield Equality(number, piece)


def _without_merged(graph: EGraph, group: list[Matched]) -> list[Matched]:
    """Leave out members whose data are a concatenation of other members' data."""
    data = {graph.find(node.children[0]) for _, node in group}
    return [
        (number, node)
        for number, node in group
        if not any(
            {graph.find(child) for child in each.children} <= data
            for each in graph.named_in(node.children[0], "concat")
        )
    ]


def _independent(graph: EGraph, group: list[Matched]) -> list[Matched]:
    """Members whose data do not depend on a member. Merging the others would create a cycle."""
    members = {graph.find(number) for number, _ in group}
    kept = []
    for number, node in group:
        seen: set[int] = set()
        waiting = [graph.find(node.children[0])]
        while waiting and not seen & members:
            current = waiting.pop()
            if current not in seen:
                seen.add(current)
                waiting += [graph.find(c) for each in graph.nodes(current) for c in each.children]
        if not seen & members:
            kept.append((number, node))
    return kept


def _sums_of_products(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """x @ a + y @ b = [x y] @ [a; b]."""
    for number, left, right in sums(graph, "matmul"):
        a, b = left.children[1], right.children[1]
        if _is_merged(graph, a) or _is_merged(graph, b):
            continue
        if graph.type(a).rank == graph.type(b).rank == 2:
            rank = graph.type(left.children[0]).rank
            data = concat([left.children[0], right.children[0]], rank - 1)
            yield Equality(number, call("matmul", data, concat([a, b], 0)))


def _convolutions_of_one_image(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """conv(x, a), conv(x, b), ... = slices of conv(x, [a b ...])."""
    for members in _groups(graph, "conv2d", 0):
        done: set[tuple[int, ...]] = set()
        for _, first in members:
            op = first.operator
            group = _alike(graph, when, [number for number, _ in members], first)
            numbers = tuple(number for number, _ in group)
            if len(group) < 2 or numbers in done:
                continue
            if not when("one group", op.get("groups") == 1):
                continue
            done.add(numbers)
            axes = axes_of(op)
            weights: list[Part] = [node.children[1] for _, node in group]
            channels = [graph.shape(node.children[1])[axes.outputs] for _, node in group]
            merged = Term(op, (first.children[0], concat(weights, axes.outputs)))
            for number, piece in zip(numbers, cut_all(merged, axes.channel, channels)):
                yield Equality(number, piece)


def _alike(graph: EGraph, when: Conditions, numbers: list[int], first: Node) -> list[Matched]:
    """The classes with a convolution of the same data, attributes and kernel size as ``first``."""
    extents = kernel_extents(graph, first.operator, first.children[1])
    group = []
    for number in numbers:
        for node in weighted_in(graph, number, "conv2d"):
            if graph.find(node.children[0]) != graph.find(first.children[0]):
                continue
            if _is_merged(graph, node.children[1]):
                continue
            if not when("equal attributes", node.operator == first.operator):
                continue
            if kernel_extents(graph, node.operator, node.children[1]) == extents:
                group.append((number, node))
                break
    return group


def _halved_groups(graph: EGraph, when: Conditions) -> Iterator[Equality]:
    """A convolution with g groups = one with g / 2 groups, half of whose weights are zero."""
    for number, conv in layers(graph, "conv2d"):
        op, weight = conv.operator, conv.children[1]
        groups = op.get("groups")
        if groups < 2 or groups % 2:
            continue
        merged = _halved(graph, op, weight, groups)
        yield Equality(number, Term(op.replaced(groups=groups // 2), (conv.children[0], merged)))


def _halved(graph: EGraph, op: Operator, weight: int, groups: int) -> Term:
    layout, shape = op.get("kernel_layout"), graph.shape(weight)
    to_plain = tuple(layout.index(letter) for letter in "OIHW")
    outputs, inputs, height, width = (shape[axis] for axis in to_plain)
    plain: Part = weight if layout == "OIHW" else permute(weight, to_plain)
    apart = reshape(plain, groups // 2, 2, outputs // groups, inputs, height, width)
    halves: list[Part] = []
    for half, side in enumerate(((0, inputs), (inputs, 0))):
        piece = call(
            "strided_slice", apart, axes=(1,), begin=(half,), end=(half + 1,), strides=(1,)
        )
        widths = ((0, 0), (0, 0), (0, 0), side, (0, 0), (0, 0))
        halves.append(call("pad", piece, widths=widths, value=0.0))
    together = reshape(concat(halves, 1), outputs, 2 * inputs, height, width)
    back = tuple("OIHW".index(letter) for letter in layout)
    return together if layout == "OIHW" else permute(together, back)


MERGE: tuple[Rule, ...] = (
    _rule("products of one value", _products_of_one_value, exact=True),
    _rule("products by one weight", _products_by_one_weight, "matrix", exact=True),
    _rule("sum of products", _sums_of_products),
    _rule(
        "convolutions of one image",
        _convolutions_of_one_image,
        "equal attributes",
        "one group",
        exact=True,
    ),
    _rule("groups halved", _halved_groups),
)
"""Rules that merge sibling layers."""

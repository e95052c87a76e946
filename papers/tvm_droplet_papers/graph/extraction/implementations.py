# SPDX-License-Identifier: Apache-2.0
"""The implementations of an e-node: an operator, and the layouts of its operands and result.

A layout is the memory order of the axes. A class has one type but may be computed in several
layouts. After "Optimal DNN Primitive Selection with Partitioned Boolean Quadratic Programming"
(Anderson and Gregg, CGO 2018). Imports no TVM.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ..equality.egraph import EGraph
from ..equality.language import ELEMENTWISE, Node, Operator, Tensor, operator

Layout = tuple[int, ...]
"""The axes of a tensor type in memory order; empty if the memory order is that of the type."""

AS_TYPED: Layout = ()

IMAGES = {"NCHW": "NHWC", "NHWC": "NCHW"}
"""Maps each image layout to its alternative."""

SAME = operator("same")
"""The operator of an implementation that does nothing: the result is the stored operand. No e-node
has this operator."""

_KERNELS = {"NCHW": "OIHW", "NHWC": "HWIO"}
_POOLS = ("max_pool2d", "avg_pool2d")


class Implementation(NamedTuple):
    """An implementation of an e-node.

    ``operator``: the operator to run on the operands as they are stored.
    """

    node: Node
    operator: Operator
    operands: tuple[Layout, ...]
    result: Layout


def order(layout: str, other: str) -> Layout:
    """The layout that stores a tensor with axes ``layout`` ("NCHW") as ``other`` ("NHWC")."""
    return tuple(layout.index(letter) for letter in other)


def stored(type_: Tensor, layout: Layout) -> Tensor:
    """The type of a tensor as stored in a layout."""
    if layout == AS_TYPED:
        return type_
    shape = (1,) * (len(layout) - type_.rank) + type_.shape
    return Tensor(tuple(shape[axis] for axis in layout), type_.dtype)


def conversion(source: Layout, target: Layout) -> Layout:
    """The transpose axes that convert a tensor from one layout to another."""
    rank = max(len(source), len(target))
    source = source or tuple(range(rank))
    return tuple(source.index(axis) for axis in target or range(rank))


def moves_nothing(shape: tuple[int, ...], axes: Layout) -> bool:
    """True if a transpose keeps the memory order because it moves only axes of extent 1."""
    moved = [axis for axis in axes if shape[axis] != 1]
    return moved == sorted(moved)


class Implementations:
    """Lists the implementations of e-nodes.

    ``graph``: the e-graph. Its convolutions and pools determine the available layouts.
    ``enabled``: whether layouts may change at all.
    """

    def __init__(self, graph: EGraph, enabled: bool = True) -> None:
        self._graph = graph
        found = {
            node.operator.get("layout") for _, node in graph.named("conv2d", *_POOLS) if enabled
        }
        self._layouts = [order(layout, IMAGES[layout]) for layout in sorted(found & set(IMAGES))]

    def of(self, node: Node) -> list[Implementation]:
        """The implementations of an e-node. The first one keeps the operator and all layouts."""
        as_typed = (AS_TYPED,) * len(node.children)
        listed = [Implementation(node, node.operator, as_typed, AS_TYPED)]
        if self._layouts:
            listed += self._in_layouts(node)
        return listed

    def _in_layouts(self, node: Node) -> Iterable[Implementation]:
        name = node.operator.name
        if name == "conv2d":
            yield from self._convolution(node)
        elif name == "permute_dims":
            yield from self._relabeled(node)
        elif name in _POOLS:
            layout = node.operator.get("layout")
            if layout in IMAGES:
                result = order(layout, IMAGES[layout])
                changed = node.operator.replaced(layout=IMAGES[layout])
                yield Implementation(node, changed, (result,), result)
        else:
            for layout in self._layouts:
                if not self._fits(node, layout):
                    continue
                found = _permuted(node.operator, layout)
                if found is not None:
                    operands = (layout,) * len(node.children)
                    yield Implementation(node, found[0], operands, found[1])

    def _convolution(self, node: Node) -> Iterable[Implementation]:
        op = node.operator
        layout, kernel = op.get("layout"), op.get("kernel_layout")
        if layout not in IMAGES or not self._graph.is_weight(node.children[1]):
            return
        target = IMAGES[layout]
        result = order(layout, target)
        changed = op.replaced(layout=target, kernel_layout=_KERNELS[target])
        yield Implementation(node, changed, (result, order(kernel, _KERNELS[target])), result)

    def _relabeled(self, node: Node) -> Iterable[Implementation]:
        """Implement a transpose to or from a layout by relabeling axes. The data stay in place."""
        axes = node.operator.get("axes")
        if axes in self._layouts:
            yield Implementation(node, SAME, (axes,), AS_TYPED)
        inverse = tuple(axes.index(axis) for axis in range(len(axes)))
        if inverse in self._layouts:
            yield Implementation(node, SAME, (AS_TYPED,), inverse)

    def _fits(self, node: Node, layout: Layout) -> bool:
        """True if the operands can be stored in a layout. Weights may gain leading axes for it."""
        ranks = set()
        for child in node.children:
            type_ = self._graph.facts(child).type
            if not isinstance(type_, Tensor):
                return False
            if not self._graph.is_weight(child):
                ranks.add(type_.rank)
            elif type_.rank > len(layout):
                return False
        return ranks == {len(layout)}


def _permuted(op: Operator, layout: Layout) -> tuple[Operator, Layout] | None:
    """The operator on operands in a layout, and the result layout; None if unsupported."""
    if op.name in ELEMENTWISE:
        return op, layout
    if op.name == "concat":
        return op.replaced(axis=layout.index(op.get("axis"))), layout
    if op.name == "strided_slice":
        return op.replaced(axes=tuple(layout.index(axis) for axis in op.get("axes"))), layout
    if op.name == "pad":
        return op.replaced(widths=tuple(op.get("widths")[axis] for axis in layout)), layout
    if op.name in ("mean", "sum"):
        axes = tuple(sorted(layout.index(axis) for axis in op.get("axis")))
        if op.get("keepdims"):
            return op.replaced(axis=axes), layout
        rest = [axis for axis in layout if axis not in op.get("axis")]
        if rest == sorted(rest):
            return op.replaced(axis=axes), AS_TYPED
    return None

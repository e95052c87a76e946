# SPDX-License-Identifier: Apache-2.0
"""The branch that an ``If`` takes, put in the place of the ``If``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .order import subgraphs

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto


def take_branch(
    node: NodeProto, condition: bool, new_name: Callable[[str], str]
) -> tuple[list[NodeProto], list[TensorProto]]:
    """Return the nodes and the initializers that an ``If`` of known condition stands for.

    ``node``: the ``If``. ``new_name``: makes a name that nothing in the model has, of one that is
    like it. Returns ``nodes``: those of the branch under new names. An output of the ``If`` is the
    branch's value, or an ``Identity`` of it where no node of the branch makes it; ``initializers``:
    those of the branch under new names.
    """
    import onnx

    wanted = "then_branch" if condition else "else_branch"
    branch = next(each.g for each in node.attribute if each.name == wanted)
    copy = type(branch)()
    copy.CopyFrom(branch)
    made = [name for inner in copy.node for name in inner.output if name]
    constants = [tensor.name for tensor in copy.initializer]
    names = {name: new_name(name) for name in dict.fromkeys(made + constants)}
    ends = []
    results = [(value.name, output) for value, output in zip(copy.output, node.output) if output]
    direct: set[str] = set()
    for name, output in results:
        # A node of the branch makes the output itself; of all else, a copy is made.
        if name in made and name not in direct:
            names[name] = output
            direct.add(name)
        else:
            source = names.get(name, name)
            ends.append(onnx.helper.make_node("Identity", [source], [output]))
    for inner in copy.node:
        rename(inner, names)
        inner.name = new_name(inner.name) if inner.name else ""
    for tensor in copy.initializer:
        tensor.name = names[tensor.name]
    return [*copy.node, *ends], list(copy.initializer)


def rename(node: NodeProto, names: dict[str, str]) -> None:
    """Rename the values that a node reads and makes, in its subgraphs too.

    ``node`` is changed. ``names``: the new name of each value that gets one.
    """
    for field in (node.input, node.output):
        if any(name in names for name in field):
            field[:] = [names.get(name, name) for name in field]
    for graph in subgraphs(node):
        _rename_graph(graph, names)


def _rename_graph(graph: GraphProto, names: dict[str, str]) -> None:
    own = {value.name for value in [*graph.input, *graph.initializer]}
    own.update(name for inner in graph.node for name in inner.output)
    outer = {old: new for old, new in names.items() if old not in own}
    for inner in graph.node:
        rename(inner, outer)
    for value in graph.output:
        value.name = outer.get(value.name, value.name)

# SPDX-License-Identifier: Apache-2.0
"""Evaluation, by PyTorch, of what does not depend on the inputs of an exported program.

Masks, positions and relative position buckets are arithmetic on integers and booleans that
PyTorch does once and TVM would compile; among them are operators that TVM lacks.
"""

from collections.abc import Mapping
from typing import Any

MOST_BYTES = 1 << 26
"""Larger results are left to be computed."""

_BY_SHAPE = {
    "full_like.default": lambda torch, node, value: torch.full_like(value, *node.args[1:2]),
    "ones_like.default": lambda torch, node, value: torch.ones_like(value),
    "zeros_like.default": lambda torch, node, value: torch.zeros_like(value),
}
"""Operators that ask their first operand for nothing but its shape and type."""

_VIEWS = (
    "alias.default",
    "expand.default",
    "permute.default",
    "t.default",
    "transpose.int",
    "unsqueeze.default",
    "view.default",
)
"""Operators that cost nothing in a compiled model, and would be memory here."""


def constant(index: int) -> None:
    """A constant of an imported program: the target of its node. It is never called."""
    raise NotImplementedError


def fold_constants(torch: Any, program: Any) -> list[Any]:
    """Evaluate the nodes that depend on no input, and make constants of what is used of them.

    The program is changed: nodes with the target ``constant`` hold the places of the results, which
    are returned.
    """
    values = _parameters(program)
    folded = {}
    graph = program.graph_module.graph
    with torch.no_grad():
        for node in graph.nodes:
            value = _evaluated(torch, node, values)
            if value is not None:
                values[node] = folded[node] = value
    _drop_settled_choices(graph, values)
    constants: list[Any] = []
    for node in reversed(list(graph.nodes)):
        if node not in folded or not isinstance(folded[node], torch.Tensor):
            continue
        if all(user in folded for user in node.users):
            continue
        if _name(node) in _VIEWS and any(each in values for each in node.all_input_nodes):
            # It stays: its operand becomes the constant, or is a parameter.
            del folded[node]
            continue
        with graph.inserting_before(node):
            held = graph.call_function(constant, (len(constants),))
        held.meta.update(node.meta)
        constants.append(folded[node].contiguous())
        node.replace_all_uses_with(held, delete_user_cb=lambda user: user not in folded)
    graph.eliminate_dead_code()
    return constants


def _drop_settled_choices(graph: Any, values: Mapping[Any, Any]) -> None:
    """Replace each ``where`` whose constant condition is true everywhere by what it takes."""
    for node in graph.nodes:
        if _name(node) != "where.self" or node in values or node.args[0] not in values:
            continue
        taken = node.args[1]
        noted, result = taken.meta.get("val"), node.meta["val"]
        if noted is None or noted.shape != result.shape or noted.dtype != result.dtype:
            continue
        if bool(values[node.args[0]].all()):
            node.replace_all_uses_with(taken)


def _parameters(program: Any) -> dict[Any, Any]:
    """The values of the placeholders that are no inputs."""
    signature = program.graph_signature
    state: Mapping[str, Any] = {**program.constants, **program.state_dict}
    targets = {
        spec.arg.name: state[spec.target]
        for spec in signature.input_specs
        if spec.target is not None and spec.target in state
    }
    nodes = (node for node in program.graph_module.graph.nodes if node.op == "placeholder")
    return {node: targets[node.name] for node in nodes if node.name in targets}


def _evaluated(torch: Any, node: Any, values: Mapping[Any, Any]) -> Any:
    """The value of a node that depends on constants only, or None."""
    if node.op != "call_function" or not _is_small(torch, node):
        return None
    name = _name(node)
    if name.startswith("empty"):
        return None
    if name in _BY_SHAPE:
        example = node.args[0].meta.get("val")
        if not isinstance(example, torch.Tensor) or not _is_static(example):
            return None
        value = torch.empty(example.shape, dtype=example.dtype)
        made = _BY_SHAPE[name](torch, node, value)
        return made.to(node.meta["val"].dtype)
    if not all(each in values for each in node.all_input_nodes):
        return None
    if torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
        return None
    args = torch.fx.node.map_arg(node.args, lambda each: values[each])
    kwargs = torch.fx.node.map_arg(node.kwargs, lambda each: values[each])
    return node.target(*args, **kwargs)


def _is_small(torch: Any, node: Any) -> bool:
    leaves = torch.utils._pytree.tree_leaves(node.meta.get("val"))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not tensors or not all(map(_is_static, tensors)):
        return False
    return bool(sum(each.numel() * each.element_size() for each in tensors) <= MOST_BYTES)


def _is_static(tensor: Any) -> bool:
    return all(isinstance(extent, int) for extent in tensor.shape)


def _name(node: Any) -> str:
    return getattr(node.target, "__name__", "")

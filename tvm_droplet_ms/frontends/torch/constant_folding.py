# SPDX-License-Identifier: Apache-2.0
"""Prepare an exported program for TVM: fold its constants, and make type conversions explicit.

Masks, positions and relative position buckets are integer and boolean arithmetic that depends on no
input. PyTorch evaluates it once, where TVM would compile it. Some of its operators are missing in
TVM.

PyTorch converts operands of different types, and integer operands of floating-point functions.
TVM's importer does so only for some operators and by its own rules: a sum of booleans stays
boolean.
"""

from collections.abc import Mapping
from typing import Any

MOST_BYTES = 1 << 26
"""Larger results are not folded."""

_BY_SHAPE = {
    "full_like.default": lambda torch, node, value: torch.full_like(value, *node.args[1:2]),
    "ones_like.default": lambda torch, node, value: torch.ones_like(value),
    "zeros_like.default": lambda torch, node, value: torch.zeros_like(value),
}
"""Operators that use only the shape and type of their first operand."""

_VIEWS = (
    "alias.default",
    "expand.default",
    "permute.default",
    "t.default",
    "transpose.int",
    "unsqueeze.default",
    "view.default",
)
"""Operators that are free in a compiled model; folding them would take memory."""


def constant(index: int) -> None:
    """The target of a node that stands for a constant; it is never called."""
    raise NotImplementedError


def fold_constants(torch: Any, program: Any) -> list[Any]:
    """Evaluate the nodes that depend on no input, and return the used results.

    The program is changed in place: nodes with the target ``constant`` stand for the results and
    hold their indices.
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
            # A view stays: its operand becomes a constant or is a parameter.
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
    """Replace each ``where`` whose constant condition is all true by its first choice."""
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
    """Return the values of the placeholders that are not inputs."""
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
    """Return the value of a node that depends only on constants, or None."""
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


_BOOLEAN = ("eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor")
_ARITHMETIC = (
    *("add", "sub", "rsub", "mul", "maximum", "minimum", "remainder", "fmod", "floor_divide"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__", "clamp"),
    *("clamp_min", "clamp_max", "pow", "addcmul", "addcdiv", "lerp", "where", "cat", "stack"),
    *("masked_fill", "fill"),
)
_FLOAT = (
    *("div", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin"),
    *("cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "atan2", "erf", "sigmoid"),
    *("reciprocal", "logaddexp", "asinh", "acosh", "atanh"),
)
_COUNTING = ("sum", "cumsum", "prod", "cumprod", "mean")
"""Reductions whose operand is converted to the type of the result."""

_EQUALITY = {"eq": "not", "ne": "xor"}


def write_out_types(torch: Any, program: Any) -> None:
    """Insert a type conversion into a program wherever PyTorch converts implicitly.

    Equality of booleans becomes ``not (a xor b)``: TVM's code generator compares booleans as floats
    (``codegen_llvm.cc``). Other comparisons of booleans are computed in ``uint8``.
    """
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        name = _name(node).partition(".")[0]
        wanted = _computed_in(torch, node, name)
        if wanted is None:
            continue
        if wanted is torch.bool and name in _EQUALITY:
            _equality(torch, graph, node, name)
            continue
        if wanted is torch.bool and name in _BOOLEAN and not name.startswith("logical"):
            wanted = torch.uint8
        for operand in node.all_input_nodes:
            if name in ("where", "masked_fill") and operand is node.args[name != "where"]:
                continue
            _convert(torch, graph, node, operand, wanted)


def _computed_in(torch: Any, node: Any, name: str) -> Any:
    """Return the type that all operands of a node are converted to, or None."""
    result = node.meta["val"].dtype
    operands = _operands(node)
    types = {operand.dtype for operand in operands if isinstance(operand, torch.Tensor)}
    if not types:
        return None
    if name in (*_COUNTING, *_FLOAT, *_ARITHMETIC):
        return result
    if name.startswith("logical") and name in _BOOLEAN:
        return torch.bool
    return torch.result_type(*operands) if name in _BOOLEAN and len(operands) == 2 else None


def _operands(node: Any) -> list[Any]:
    """Return the values of a node's operands: fake tensors and numbers."""
    flat: list[Any] = []
    for argument in node.args:
        flat += argument if isinstance(argument, list | tuple) else [argument]
    return [each.meta.get("val") if hasattr(each, "meta") else each for each in flat]


def _convert(torch: Any, graph: Any, node: Any, operand: Any, dtype: Any) -> None:
    value = operand.meta.get("val")
    if not isinstance(value, torch.Tensor) or value.dtype == dtype:
        return
    with graph.inserting_before(node):
        converted = graph.call_function(
            torch.ops.aten._to_copy.default, (operand,), {"dtype": dtype}
        )
    converted.meta["val"] = value.to(dtype)
    node.replace_input_with(operand, converted)


def _equality(torch: Any, graph: Any, node: Any, name: str) -> None:
    """Replace ``eq`` and ``ne`` of booleans."""
    one, other = node.args
    aten = torch.ops.aten
    with graph.inserting_before(node):
        if isinstance(other, bool | int | float):
            # PyTorch compares a boolean tensor with a number in boolean only if both are boolean.
            is_kept = bool(other) == (name == "eq")
            made = (
                graph.call_function(aten.alias.default, (one,))
                if is_kept
                else graph.call_function(aten.logical_not.default, (one,))
            )
        else:
            made = graph.call_function(aten.logical_xor.default, (one, other))
            if name == "eq":
                made.meta["val"] = node.meta["val"]
                made = graph.call_function(aten.logical_not.default, (made,))
    made.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(made)
    graph.erase_node(node)

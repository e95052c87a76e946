# SPDX-License-Identifier: Apache-2.0
"""Make PyTorch's implicit type conversions explicit in an exported program.

PyTorch converts operands of different types, and integer operands of floating-point functions.
TVM's importer does so only for some operators and by its own rules: a sum of booleans stays
boolean.
"""

from typing import Any

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
        name, _, overload = getattr(node.target, "__name__", "").partition(".")
        wanted = _computed_in(torch, node, name, overload)
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


def _computed_in(torch: Any, node: Any, name: str, overload: str) -> Any:
    """Return the type that all operands of a node are converted to, or None."""
    result = node.meta["val"].dtype
    operands = _operands(node)
    types = {operand.dtype for operand in operands if isinstance(operand, torch.Tensor)}
    if not types:
        return None
    if name in _COUNTING:
        return result
    if name in _FLOAT or (name == "div" and overload.startswith("Tensor")):
        return result
    if name in _ARITHMETIC:
        return result
    if name in _BOOLEAN:
        if name.startswith("logical"):
            return torch.bool
        return torch.result_type(*operands) if len(operands) == 2 else None
    return None


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

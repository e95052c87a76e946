# SPDX-License-Identifier: Apache-2.0
"""An exported program in fewer, simpler operators."""

import functools
from typing import Any

from ....session.errors import ModelError
from .loading import line_of
from .recurrent import KEPT, has_projections
from .rules import RULES


def decompose(torch: Any, program: Any) -> Any:
    """Decompose a program by PyTorch's own rules, into operators that TVM has.

    Returns another program of the same inputs and outputs.
    """
    table = torch.export.default_decompositions()
    for name, rule in RULES.items():
        packet, overload = name.split(".")
        table[getattr(getattr(torch.ops.aten, packet), overload)] = functools.partial(rule, torch)
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    recurrent = [node for node in nodes if node.target.__name__ in KEPT]
    if not any(map(has_projections, recurrent)):
        for node in recurrent:
            table.pop(node.target, None)
    with torch.no_grad():
        return program.run_decompositions(table)


def drop_what_computes_nothing(torch: Any, program: Any) -> None:
    """Remove assertions, and inputs that are no tensors (None, numbers, flags).

    ``program``: a decomposed program, which is changed.
    """
    graph = program.graph_module.graph
    for node in reversed(list(graph.nodes)):
        name = getattr(node.target, "__name__", "")
        if name.startswith(("_assert", "sym_constrain_range")) and not node.users:
            graph.erase_node(node)
    signature = program.graph_signature
    constant = torch.export.graph_signature.ConstantArgument
    fixed = {
        spec.arg.name: spec.arg.value
        for spec in signature.input_specs
        if isinstance(spec.arg, constant)
    }
    for node in list(graph.nodes):
        if node.op == "placeholder" and node.name in fixed:
            node.users and node.replace_all_uses_with(fixed[node.name])
            graph.erase_node(node)
    signature.input_specs[:] = [s for s in signature.input_specs if s.arg.name not in fixed]


def refuse_random_numbers(torch: Any, program: Any) -> None:
    """Refuse a program that draws random numbers where TVM would take constants.

    Raises ``ModelError``, which names the operator, if it does.
    """
    for node in program.graph_module.graph.nodes:
        tags = getattr(node.target, "tags", ())
        if node.op == "call_function" and torch.Tag.nondeterministic_seeded in tags:
            if _is_idle_dropout(node):
                continue
            name = node.target.__name__
            raise ModelError(
                f"the model draws random numbers, {name}{line_of(node)}: a compiled model gives "
                "the same outputs for the same inputs; pass the numbers as an input"
            )


def _is_idle_dropout(node: Any) -> bool:
    name = node.target.__name__
    if name in KEPT:
        dropout, is_training = node.args[5:7]
        return dropout == 0.0 or not is_training
    return "dropout" in name and node.args[-1] is False

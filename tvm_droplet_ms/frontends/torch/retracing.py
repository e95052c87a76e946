# SPDX-License-Identifier: Apache-2.0
"""Retrace an exported program with other types: float32 for half, pairs for complex.

PyTorch's own export does the work: a module interprets the program, and this module is exported.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from . import complex_pairs
from .loading import unlifted

Shapes = Mapping[str, Sequence[int]]


def leaves_open(torch: Any, program: Any, shapes: Shapes) -> bool:
    """Return whether a program has dynamic extents and ``shapes`` fits and has all of them."""
    kind = torch.export.graph_signature.InputKind.USER_INPUT
    names = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind is kind}
    is_open = False
    for node in program.graph_module.graph.nodes:
        noted = node.meta.get("val")
        if node.op != "placeholder" or node.name not in names or noted is None:
            continue
        for number, extent in enumerate(getattr(noted, "shape", ())):
            if isinstance(extent, int):
                continue
            is_open = True
            if len(shapes.get(node.name, ())) != len(noted.shape):
                return False
            if int(shapes[node.name][number]) < 1:
                return False
    return is_open


def retrace(torch: Any, program: Any, shapes: Shapes) -> Any:
    """Export a decomposed program again, with real float32 numbers and static shapes.

    The new program takes the tensor inputs by keyword and returns a flat tuple of the outputs, with
    the types of the old program. Internally, it computes in float32 instead of float16 or bfloat16,
    and with real and imaginary parts instead of complex numbers.
    """
    inner = unlifted(program)
    placeholders = {
        node.name: node.meta.get("val")
        for node in program.graph_module.graph.nodes
        if node.op == "placeholder"
    }
    kind = torch.export.graph_signature.InputKind.USER_INPUT
    specs = [spec.arg for spec in program.graph_signature.input_specs if spec.kind is kind]
    names = [spec.name for spec in specs]
    # Inputs are passed by keyword to keep their names.
    examples = {
        name: torch.zeros(tuple(_extents(noted, shapes.get(name))), dtype=noted.dtype)
        for name in names
        if isinstance(noted := placeholders[name], torch.Tensor)
    }
    fixed = {spec.name: getattr(spec, "value", None) for spec in specs if spec.name not in examples}
    module = _interpreting(torch, inner, names, fixed)
    with torch.no_grad():
        return torch.export.export(module, (), examples, strict=False)


def _extents(noted: Any, given: Sequence[int] | None) -> list[int]:
    """Return an input's shape: static extents, then given ones, then those of the example."""
    given = given if given is not None and len(given) == len(noted.shape) else noted.shape
    pairs = zip(noted.shape, given, strict=True)
    return [int(extent if isinstance(extent, int) else other) for extent, other in pairs]


def _interpreting(torch: Any, inner: Any, names: Sequence[str], fixed: Mapping[str, Any]) -> Any:
    """Return a module that runs a program. ``fixed``: the values of non-tensor inputs."""
    half = (torch.float16, torch.bfloat16)

    def widened(value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype in half:
            return value.float()
        return value

    def narrowed(value: Any, declared: Any) -> Any:
        if isinstance(value, complex_pairs.Pair):
            return value.parts
        if isinstance(declared, torch.Tensor) and declared.dtype in half:
            return value.to(declared.dtype)
        return value

    class Interpreter(torch.fx.Interpreter):  # type: ignore[misc]
        def get_attr(self, target: str, args: Any, kwargs: Any) -> Any:
            return widened(super().get_attr(target, args, kwargs))

        def placeholder(self, target: str, args: Any, kwargs: Any) -> Any:
            return widened(super().placeholder(target, args, kwargs))

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if getattr(target, "__name__", "").startswith("_assert"):
                # These assert types, which differ here, or extents.
                return None
            if any(kwargs.get("dtype") is each for each in half):
                kwargs = {**kwargs, "dtype": torch.float32}
            return complex_pairs.call(torch, target, args, kwargs)

    class Interpreting(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, **inputs: Any) -> Any:
            values = [fixed[name] if name in fixed else inputs[name] for name in names]
            outputs = Interpreter(self.inner).run(*values, enable_io_processing=False)
            flat: Sequence[Any] = torch.utils._pytree.tree_leaves(
                outputs, is_leaf=lambda each: isinstance(each, complex_pairs.Pair)
            )
            return tuple(map(narrowed, flat, declared))

    output = next(node for node in inner.graph.nodes if node.op == "output")
    declared = [
        node.meta.get("val") if isinstance(node, torch.fx.Node) else node
        for node in torch.utils._pytree.tree_leaves(output.args[0])
    ]
    module = Interpreting()
    # ``eval()`` would also call the program's ``eval()``, which raises.
    module.training = False
    return module

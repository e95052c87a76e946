# SPDX-License-Identifier: Apache-2.0
"""The dynamic extents of an exported program, and example inputs of other shapes."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...session.errors import ModelError
from ..extents import DeclaredInput, Dims, Shapes, fits, named_extents, resolve_shapes


def user_specs(torch: Any, program: Any) -> list[Any]:
    """List the inputs of a program: not its parameters, buffers and constants."""
    kind = torch.export.graph_signature.InputKind.USER_INPUT
    return [spec for spec in program.graph_signature.input_specs if spec.kind is kind]


def user_inputs(torch: Any, program: Any) -> dict[str, Any]:
    """Return a fake tensor for each tensor input of a program, by name."""
    noted = {node.name: node.meta.get("val") for node in program.graph_module.graph.nodes}
    names = [spec.arg.name for spec in user_specs(torch, program)]
    return {name: noted[name] for name in names if isinstance(noted.get(name), torch.Tensor)}


def static_shapes(torch: Any, program: Any, shapes: Shapes, dims: Dims) -> dict[str, list[int]]:
    """Return the shapes of all inputs, from the given shapes and named extents.

    A dynamic extent has the name of its symbol in the program, such as ``s77``: ``torch.export``
    drops the name of a ``Dim``. Raises ``ModelError`` as ``resolve_shapes`` does, and if an extent
    is outside the range that the program states.
    """
    noted = {name: value.shape for name, value in user_inputs(torch, program).items()}
    plain = [DeclaredInput(name, tuple(map(_name, shape))) for name, shape in noted.items()]
    known = named_extents(plain, shapes, dims)
    _check_ranges(program, known)
    # An extent may be an expression of other extents, such as 2*s77.
    declared = [
        DeclaredInput(name, tuple(_value(extent, known) for extent in shape))
        for name, shape in noted.items()
    ]
    return resolve_shapes(declared, shapes, dims)


def symbols(torch: Any, program: Any) -> dict[str, tuple[str | None, ...]]:
    """Return the symbols of the inputs' extents by the name of the input; see ``InputSpec``."""
    names = {name: _symbols(value) for name, value in user_inputs(torch, program).items()}
    return {name: found for name, found in names.items() if any(found)}


def output_symbols(torch: Any, program: Any) -> tuple[tuple[str | None, ...], ...]:
    """Return the symbols of the outputs' extents, in order; empty if there are none."""
    (output,) = (node for node in program.graph_module.graph.nodes if node.op == "output")
    values = [getattr(each, "meta", {}).get("val") for each in output.args[0] if each is not None]
    # A complex output becomes one of another rank.
    are_known = [isinstance(each, torch.Tensor) and not each.is_complex() for each in values]
    found = [_symbols(each) if known else () for each, known in zip(values, are_known, strict=True)]
    return tuple(each if any(each) else () for each in found) if any(map(any, found)) else ()


def _symbols(value: Any) -> tuple[str | None, ...]:
    return tuple(each if isinstance(each, str) else None for each in map(_name, value.shape))


def resized_examples(torch: Any, program: Any, examples: Any, shapes: Shapes) -> Any:
    """Resize the example inputs of a program; return None if they already have the shapes.

    Values are repeated, so that indices stay in range.
    """
    leaves, structure = torch.utils._pytree.tree_flatten(examples)
    names = [spec.arg.name for spec in user_specs(torch, program)]
    other = {
        number: shapes[name]
        for number, (name, leaf) in enumerate(zip(names, leaves, strict=True))
        if name in shapes and isinstance(leaf, torch.Tensor)
        # A different rank is refused later, when the program is examined.
        if leaf.dim() == len(shapes[name]) and not fits(tuple(leaf.shape), shapes[name])
    }
    for number, shape in other.items():
        leaves[number] = _resized(torch, leaves[number], shape)
    return torch.utils._pytree.tree_unflatten(leaves, structure) if other else None


def _resized(torch: Any, tensor: Any, shape: Sequence[int]) -> Any:
    if 0 in tensor.shape:
        return tensor.new_zeros(tuple(shape))
    repeats = [-(-extent // old) for extent, old in zip(shape, tensor.shape, strict=True)]
    return tensor.repeat(repeats)[tuple(slice(extent) for extent in shape)]


def _name(extent: Any) -> int | str | None:
    """Return a number, the name of a symbol, or None for an expression of symbols."""
    if isinstance(extent, int):
        return extent
    return str(extent) if extent.node.expr.is_Symbol else None


def _value(extent: Any, known: Mapping[str, int]) -> int | str | None:
    if isinstance(extent, int) or extent.node.expr.is_Symbol:
        return _name(extent)
    term = extent.node.expr
    value = term.subs({each: known[str(each)] for each in term.free_symbols if str(each) in known})
    return int(value) if value.is_Integer else None


def _check_ranges(program: Any, known: Mapping[str, int]) -> None:
    for symbol, allowed in program.range_constraints.items():
        value = known.get(str(symbol))
        # PyTorch states a lower bound of 2 for any dynamic extent, but also accepts 0 and 1.
        least = 0 if allowed.lower <= 2 else allowed.lower
        if value is not None and not least <= value <= allowed.upper:
            raise ModelError(
                f"the extent {symbol} is {value}: the program was exported for {least} to "
                f"{allowed.upper}; take one of those, or export it with another range"
            )

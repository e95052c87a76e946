# SPDX-License-Identifier: Apache-2.0
"""Import an exported program to Relax."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...model.decoding.in_place import give_away
from ...session.errors import ModelError, first_line
from ..imported import Arrays, ImportedModel, Reference, check_inputs
from ..relax import bind_shapes
from .changed_state import merge_aliases, return_changes
from .constant_folding import fold_constants, write_out_types
from .loading import export_module, import_pytorch, unlifted
from .open_extents import output_symbols, static_shapes, symbols, user_specs
from .retracing import leaves_open, retrace
from .rules import decompose, drop_what_computes_nothing, refuse_random_numbers


def import_torch(
    model: Any,
    example_inputs: Any = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int = 1,
    dims: Mapping[str, int] | None = None,
) -> ImportedModel:
    """Import an exported program, or export a module with its example inputs and import that.

    PyTorch is the reference. Buffers and inputs that a module changes are returned as outputs.
    Raises ``ModelError`` if example inputs are missing, the module cannot be exported, the model
    draws random numbers, or the frontend lacks an operator.
    """
    torch = import_pytorch()
    notes: list[str] = []
    program = model
    if not isinstance(model, torch.export.ExportedProgram):
        program, notes = export_module(torch, model, example_inputs, shapes or {})
    try:
        merge_aliases(torch, program)
        simple = decompose(torch, program)
        changeless, changes, written = return_changes(torch, simple)
        if changes:
            notes += changes
            program, simple = changeless, decompose(torch, changeless)
        half = _half_types(torch, simple)
        has_complex = any(value.is_complex() for value in _values(torch, simple))
        fixed = static_shapes(torch, simple, shapes or {}, dims or {})
        extents, output_extents = symbols(torch, simple), output_symbols(torch, simple)
        if half or has_complex or leaves_open(torch, simple, fixed):
            program = retrace(torch, simple, fixed)
            simple = decompose(torch, program)
    except ModelError as error:
        # PyTorch's interpreter has appended lines to the message.
        raise ModelError(first_line(error)) from error
    except Exception as error:
        raise ModelError(f"PyTorch cannot decompose the model: {first_line(error)}") from error
    if half:
        notes.append(
            f"the model is of {' and '.join(half)}: it is computed in float32, its weights are "
            "converted, its inputs and outputs have the types that it declares"
        )
    mod = bind_shapes(_relax_of(torch, simple), fixed)
    if written:
        kinds = getattr(mod["main"].ret_ty, "fields", [mod["main"].ret_ty])
        mod = give_away(mod, dict(zip(written, range(len(kinds) - len(written), len(kinds)))))
    specs = [replace(spec, extents=extents.get(spec.name, ())) for spec in check_inputs(mod)]
    return ImportedModel(
        mod,
        tuple(specs),
        _reference(torch, program, threads),
        notes=tuple(notes),
        output_extents=output_extents,
    )


def _half_types(torch: Any, program: Any) -> list[str]:
    """Return the 16-bit floating-point types that a program uses."""
    types = {value.dtype for value in _values(torch, program)}
    return [name for name in ("float16", "bfloat16") if getattr(torch, name) in types]


def _values(torch: Any, program: Any) -> list[Any]:
    """Return a fake tensor for each result in a program."""
    nodes = program.graph_module.graph.nodes
    found = (torch.utils._pytree.tree_leaves(node.meta.get("val")) for node in nodes)
    return [value for leaves in found for value in leaves if isinstance(value, torch.Tensor)]


def _relax_of(torch: Any, program: Any) -> Any:
    from .importer import CheckedImporter

    drop_what_computes_nothing(torch, program)
    constants = fold_constants(torch, program)
    refuse_random_numbers(torch, program)
    write_out_types(torch, program)
    importer = CheckedImporter(torch, constants)
    importer.refuse_unknown(program)
    try:
        return importer.from_exported_program(
            program,
            keep_params_as_input=False,
            unwrap_unit_return_tuple=True,
            no_bind_return_tuple=False,
            custom_convert_map=None,
        )
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            f"TVM's PyTorch frontend cannot import the model: {first_line(error)}"
        ) from error


def _reference(torch: Any, program: Any, threads: int) -> Reference:
    module = unlifted(program)
    tree = torch.utils._pytree
    constant_argument = torch.export.graph_signature.ConstantArgument
    fixed = [
        (isinstance(spec.arg, constant_argument), getattr(spec.arg, "value", None))
        for spec in user_specs(torch, program)
    ]

    def run(inputs: Sequence[np.ndarray]) -> Arrays:
        tensors = iter([_as_tensor(torch, array) for array in inputs])
        flat = [value if is_fixed else next(tensors) for is_fixed, value in fixed]
        args, kwargs = tree.tree_unflatten(flat, program.call_spec.in_spec)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            with torch.no_grad():
                outputs = module(*args, **kwargs)
        finally:
            torch.set_num_threads(before)
        leaves = tree.tree_leaves(outputs)
        return [_as_array(torch, leaf) for leaf in leaves if leaf is not None]

    return Reference("PyTorch", run)


def _as_tensor(torch: Any, array: np.ndarray) -> Any:
    """Convert an array to a tensor of the same shape and type, including 0-d and bfloat16."""
    whole = np.array(array, order="C")
    if str(whole.dtype) == "bfloat16":
        # NumPy has this type only through ml_dtypes, and PyTorch has its own.
        return torch.from_numpy(whole.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(whole)


def _as_array(torch: Any, value: Any) -> np.ndarray:
    """Convert an output to an array: a tensor, which may require gradients, or a number."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    tensor = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    if tensor.dtype is torch.bfloat16:
        import ml_dtypes

        return np.asarray(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(tensor.numpy())

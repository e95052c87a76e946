# SPDX-License-Identifier: Apache-2.0
"""Import an ONNX model for tuning."""

import contextlib
import io
import traceback
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import onnx

from tvm.ir import IRModule

from ...compat.quiet import without_lines
from ...model.folding.taps import fold_pads
from ...model.integers.products import compute_in_integers, count_products
from ...session.errors import ModelError, first_line
from ..extents import check_dims, check_shapes, named_extents, resolve_shapes
from ..imported import ImportedModel, check_inputs, check_memory
from .given_inputs import (
    declared_input,
    extent_names,
    input_values,
    mark_given,
    named_pairs,
    refusal,
    share_pasts,
)
from .mapped import load_others, mapped_weights, read_light
from .operators.importer import more_operators
from .operators.nodes.contrib.packed_weights import rounds_to_bytes, with_exact_others
from .order import true_inputs
from .reference import first_different_node, onnx_runtime
from .simplify import bound_in_order, simplify_onnx, without_zip_maps


def load_onnx(path: str) -> onnx.ModelProto:
    """Read an ONNX file. Raises ``ModelError`` if the file is not a readable ONNX model."""
    try:
        model, places = read_light(path)
    except Exception as error:
        raise ModelError(f"model {path!r} is no ONNX file: {first_line(error)}") from error
    try:
        load_others(model, path, places)
    except Exception as error:
        raise ModelError(
            f"model {path!r} has weights in other files, which cannot be read: {first_line(error)}"
        ) from error
    check_memory(sum(array.nbytes for array in mapped_weights(model).values()))
    if not model.graph.node:
        raise ModelError(f"model {path!r} is no ONNX file: it has no operators")
    return model


def import_onnx(
    model: onnx.ModelProto,
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int = 1,
    *,
    dims: Mapping[str, int] | None = None,
    constants: Mapping[str, Any] | None = None,
    in_place: Mapping[str, str] | None = None,
    path: str | None = None,
) -> ImportedModel:
    """Simplify an ONNX model and import it with TVM's frontend.

    ONNX Runtime is the reference if it is installed and can load the model. Inputs in ``constants``
    are not inputs of the imported model. ``in_place``: see ``named_pairs``. Raises ``ModelError``
    if an extent is missing or the frontend cannot import the model.
    """
    model, zip_notes = without_zip_maps(model)
    path = None if zip_notes else path
    others = [value for value in true_inputs(model) if value.name not in (constants or {})]
    declared = [declared_input(value) for value in others]
    named = named_extents(declared, check_shapes(shapes or {}), check_dims(dims or {}))
    values = input_values(model, constants or {}, named)
    bound = resolve_shapes(declared, shapes or {}, dims or {})
    is_open = any(
        each.extents is None or not all(isinstance(extent, int) for extent in each.extents)
        for each in declared
    )
    load = partial(_from_onnx, is_open=is_open)
    outputs = [value.name for value in model.graph.output]
    output_extents = tuple(map(extent_names, model.graph.output))
    extents = {value.name: extent_names(value) for value in others}
    pairs = named_pairs(in_place or {}, list(bound), outputs)
    marked, shared = share_pasts(model, pairs)
    # ONNX Runtime takes seconds to read and optimize a large model.
    with ThreadPoolExecutor(1) as thread:
        started = thread.submit(onnx_runtime, model, list(bound), values, threads, path, shared)
        model = with_exact_others(marked, keeps_bytes=rounds_to_bytes())
        try:
            simplified = simplify_onnx(model, bound, values)
        except ValueError as error:
            raise ModelError(f"the model's graph is damaged: {error}") from error
        mod = load(simplified.model)
        if pairs:
            mod = mark_given(mod, pairs, list(bound), outputs)
        reference, problem = started.result()
    notes = zip_notes + simplified.notes
    counts = count_products(compute_in_integers()(fold_pads()(mod)))
    if counts.dequantized:
        notes += (
            f"{counts.dequantized} of {counts.in_integers + counts.dequantized} quantized "
            "convolutions and matrix products are not computed in 8 bits: they have several "
            "groups, weights that are no constant bytes, or activations of floats, of 16 bits or "
            "of many scales",
        )
    original = None
    if reference is None:
        try:
            original = load(bound_in_order(model, bound, values))
        except ModelError:
            notes += ("only the simplified model can be imported: it is its own reference",)
    if problem:
        notes += (
            f"ONNX Runtime cannot load the model ({problem}): outputs are compared with those of "
            "the untouched import",
        )
    specs = [
        replace(spec, name=name, extents=extents[name])
        for spec, name in zip(check_inputs(mod), bound, strict=True)
    ]
    locate = partial(first_different_node, simplified.model, list(bound), load)
    return ImportedModel(
        mod,
        tuple(specs),
        reference,
        original,
        notes,
        locate if reference else None,
        output_names=tuple(outputs),
        output_extents=output_extents,
    )


def _from_onnx(model: onnx.ModelProto, *, is_open: bool) -> IRModule:
    from tvm.relax.frontend.onnx import from_onnx

    message = ""
    # The frontend prints its inputs, and TVM prints the state of its builder; the error suffices.
    with (
        more_operators,
        without_lines("BlockBuilder destroyed"),
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            return from_onnx(model, shape_dict=_empty_inputs(model))
        # The frontend raises many error types for models that it cannot import.
        except Exception as error:
            message = refusal(model, error, is_open)
            # Destroy the builder here, while its output is suppressed.
            traceback.clear_frames(error.__traceback__)
    raise ModelError(message)


def _empty_inputs(model: onnx.ModelProto) -> dict[str, list[int]]:
    """Return the shapes of inputs with an extent of 0, which TVM's frontend takes for dynamic."""
    shapes = {each.name: each.type.tensor_type.shape.dim for each in model.graph.input}
    return {
        name: [int(dim.dim_value) for dim in dims]
        for name, dims in shapes.items()
        if all(dim.HasField("dim_value") for dim in dims) and not all(d.dim_value for d in dims)
    }

# SPDX-License-Identifier: Apache-2.0
"""An ONNX model as a model to tune."""

import contextlib
import io
import os
import traceback
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tvm.ir import IRModule

from ...compat.quiet import without_lines
from ...model.onnx.binding import true_inputs
from ...model.onnx.operators import UnsupportedNode, more_operators
from ...model.onnx.order import named
from ...model.onnx.simplify import bound_in_order, simplify_onnx
from ...session.errors import ModelError
from .extents import resolve_shapes
from .imported import ImportedModel, check_inputs
from .onnx_difference import first_different_node
from .onnx_inputs import declared_input, input_values
from .onnx_reference import onnx_runtime

if TYPE_CHECKING:
    import onnx

DECIDED = ("If", "Loop", "Scan")
"""Operators that may go once a value that they depend on is known."""


def load_onnx(path: str) -> "onnx.ModelProto":
    """Read an ONNX file. Raises ``ModelError`` if the file holds no ONNX model."""
    import onnx

    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise ModelError(f"model {path!r} is no ONNX file: {_first_line(error)}") from error
    try:
        onnx.load_external_data_for_model(model, os.path.dirname(os.path.abspath(path)))
    except Exception as error:
        raise ModelError(
            f"model {path!r} has weights in other files, which cannot be read: {_first_line(error)}"
        ) from error
    if not model.graph.node:
        raise ModelError(f"model {path!r} is no ONNX file: it has no operators")
    return model


def import_onnx(
    model: "onnx.ModelProto",
    shapes: Mapping[str, Sequence[int]] | None = None,
    threads: int = 1,
    *,
    dims: Mapping[str, int] | None = None,
    constants: Mapping[str, Any] | None = None,
    path: str | None = None,
) -> ImportedModel:
    """Simplify an ONNX model and import it with TVM's frontend.

    - ``model``: the model, its weights included.
    - ``shapes``: shapes of the inputs by name, for those whose extents the model leaves open.
    - ``threads``: threads that ONNX Runtime may use.
    - ``dims``: extents by the names that the model gives them, for all inputs at once.
    - ``constants``: values of inputs by name, which are inputs of the tuned model no more: such as
      a sample rate that an ``If`` asks for.
    - ``path``: the file that the model was read from.

    Returns the model. ONNX Runtime is the reference where it is installed and can load the model.
    Raises ``ModelError`` if an extent is missing, or the frontend cannot import the model.
    """
    values = input_values(model, constants or {}, dims or {})
    inputs = [value for value in true_inputs(model) if value.name not in values]
    bound = resolve_shapes([declared_input(value) for value in inputs], shapes or {}, dims or {})
    # ONNX Runtime reads and optimizes a large model for seconds.
    with ThreadPoolExecutor(1) as thread:
        started = thread.submit(onnx_runtime, model, list(bound), values, threads, path)
        try:
            simplified = simplify_onnx(model, bound, values)
        except ValueError as error:
            raise ModelError(f"the model's graph is damaged: {error}") from error
        mod = _from_onnx(simplified.model)
        reference, problem = started.result()
    notes = simplified.notes
    original = None
    if reference is None:
        try:
            original = _from_onnx(bound_in_order(model, bound, values))
        except ModelError:
            notes += ("only the simplified model can be imported: it is its own reference",)
    if problem:
        notes += (
            f"ONNX Runtime cannot load the model ({problem}): outputs are compared with those of "
            "the untouched import",
        )
    specs = [replace(spec, name=name) for spec, name in zip(check_inputs(mod), bound, strict=True)]
    locate = partial(first_different_node, simplified.model, list(bound), _from_onnx)
    return ImportedModel(
        mod, tuple(specs), reference, original, notes, locate if reference else None
    )


def _from_onnx(model: "onnx.ModelProto") -> IRModule:
    from tvm.relax.frontend.onnx import from_onnx

    message = ""
    # The frontend prints its inputs and TVM the state of its builder; what matters is in the error.
    with (
        more_operators,
        without_lines("BlockBuilder destroyed"),
        contextlib.redirect_stdout(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            return from_onnx(model)
        # It raises errors of all kinds for what it cannot import.
        except Exception as error:
            message = _refusal(error)
            # The builder ends here, and its lines with it.
            traceback.clear_frames(error.__traceback__)
    raise ModelError(message)


def _refusal(error: Exception) -> str:
    node = _failing_node(error)
    if isinstance(error, UnsupportedNode):
        text = f"{_first_line(error)}; export the model without it"
    else:
        where = f" {named(node)} of" if node is not None else ""
        text = f"TVM's ONNX importer cannot import{where} the model: {_first_line(error)}"
    if node is not None and node.op_type in DECIDED:
        text += ", or bind the input that decides it with constants={name: value} (--constant)"
    return text


def _failing_node(error: BaseException) -> Any:
    """The node that the importer was at, from the frames that the error came through."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "_construct_nodes":
            return frame.f_locals.get("node")
    return None


def _first_line(error: BaseException) -> str:
    return _first_line_of(str(error)) or type(error).__name__


def _first_line_of(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (lines or [""])[0][:300]

# SPDX-License-Identifier: Apache-2.0
"""Simplify an ONNX model so that TVM's importer reads it correctly."""

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto

from ...session.errors import first_line
from .folding import fold_constants
from .halves import half_types, to_float32
from .inputs import bind_inputs
from .narrow_integers import widen_integers
from .opset import with_new_opset
from .order import sort_nodes
from .rewriting.nodes import prepare_onnx

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Simplified:
    """A model to import.

    ``notes``: changes that a user should know about, and steps that failed.
    """

    model: ModelProto
    notes: tuple[str, ...]


def simplify_onnx(
    model: ModelProto,
    shapes: Mapping[str, Sequence[int]],
    constants: Mapping[str, Array] | None = None,
) -> Simplified:
    """Bind the inputs of a model, sort its nodes, and fold its constants.

    Functions of the model are inlined, half floats become float32, and old operators are converted
    to a version that TVM's importer knows. ``prepare_onnx`` rewrites nodes that this importer makes
    opaque. ``model`` is not changed. ``shapes``: the shape of each input. ``constants``: values of
    inputs, which become initializers. Returns the model and notes about it. A failed step is
    skipped and noted. Raises ``ValueError`` if the nodes of the model have no order.
    """
    changed = bound_in_order(model, shapes, constants or {})
    notes: list[str] = []
    if kinds := half_types(changed).anywhere:
        changed = to_float32(changed, borders=True)
        notes.append(
            f"the model is one of {' and '.join(kinds)}: it is computed in float32, with its "
            "weights converted; inputs and outputs are as declared"
        )
    steps = (
        ("its functions were not inlined", _inline),
        ("its old operators were not converted to new ones", with_new_opset),
        ("its weights of a few bits were not made bytes", widen_integers),
        ("it was not simplified", _folded),
    )
    for failure, step in steps:
        changed = _attempt(step, changed, failure, notes)
    return Simplified(prepare_onnx(changed), tuple(notes))


def bound_in_order(
    model: ModelProto, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, Array]
) -> ModelProto:
    """Bind the inputs of a model and sort its nodes, and change nothing else.

    ``model`` is not changed. ``shapes``: the shape of each input. ``constants``: values of inputs,
    which become initializers. Returns a copy. Raises ``ValueError`` if the nodes of the model have
    no order.
    """
    bound = bind_inputs(model, shapes, constants)
    sort_nodes(bound)
    return bound


def _attempt(
    step: Callable[[ModelProto], ModelProto], model: ModelProto, failure: str, notes: list[str]
) -> ModelProto:
    """The model after a step, or unchanged if the step fails or loses an output."""
    outputs = [value.name for value in model.graph.output]
    # ONNX's tools raise errors of many types. The model can still be imported without the step.
    try:
        changed = step(model)
    except Exception as error:
        notes.append(f"{failure}: {first_line(error)[:200]}")
        return model
    if [value.name for value in changed.graph.output] != outputs:
        notes.append(f"{failure}: outputs were lost")
        return model
    return changed


def _inline(model: ModelProto) -> ModelProto:
    if not model.functions:
        return model
    import onnx.inliner

    inlined: ModelProto = onnx.inliner.inline_local_functions(model)
    return inlined


def _folded(model: ModelProto) -> ModelProto:
    copy = deepcopy(model)
    fold_constants(copy)
    return copy

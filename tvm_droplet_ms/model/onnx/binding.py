# SPDX-License-Identifier: Apache-2.0
"""Fixed shapes and fixed values for the inputs of an ONNX model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto, ValueInfoProto

Array = np.ndarray[Any, Any]


def true_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """List the inputs of a model that are no weights.

    Before version 4 of the format it lists its weights among its inputs. Returns the inputs without
    an initializer of the same name.
    """
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def bind_inputs(
    model: ModelProto, shapes: Mapping[str, Sequence[int]], constants: Mapping[str, Array]
) -> ModelProto:
    """Return a copy of a model for inputs of some shapes, and for some values of others.

    ``model`` is not changed. ``shapes``: the shapes of inputs by name. ``constants``: the values of
    inputs by name, in their types. These are inputs no more. Returns the copy. It states no shapes
    but those of its inputs: what was stated for open extents is of no use, and may be wrong.
    """
    import onnx

    copy = type(model)()
    copy.CopyFrom(model)
    graph = copy.graph
    kept = [value for value in true_inputs(copy) if value.name not in constants]
    for value in kept:
        if value.name in shapes:
            shape = value.type.tensor_type.shape
            del shape.dim[:]
            # Also where there are no extents: a scalar has a shape without any.
            value.type.tensor_type.shape.SetInParent()
            for extent in shapes[value.name]:
                shape.dim.add().dim_value = int(extent)
    del graph.input[:]
    graph.input.extend(kept)
    graph.initializer.extend(
        onnx.numpy_helper.from_array(value, name) for name, value in constants.items()
    )
    for value in graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    keep = [value for value in graph.value_info if not value.type.HasField("tensor_type")]
    del graph.value_info[:]
    graph.value_info.extend(keep)
    return copy

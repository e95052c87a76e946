# SPDX-License-Identifier: Apache-2.0
"""The inputs of an ONNX model: as declared, and as bound to values."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...model.onnx.inputs import true_inputs
from ...session.errors import ModelError
from .extents import DeclaredInput

if TYPE_CHECKING:
    import onnx

STRING = 8
"""ONNX's number of that element type."""


def declared_input(value: "onnx.ValueInfoProto") -> DeclaredInput:
    """Read an input's declaration.

    Its name and extents. Raises ``ModelError`` if it is not a tensor of numbers.
    """
    if not value.type.HasField("tensor_type"):
        kind = value.type.WhichOneof("value") or "value of no type"
        raise ModelError(f"input {value.name!r} is a {kind}: expected a tensor")
    tensor = value.type.tensor_type
    if tensor.elem_type == STRING:
        raise ModelError(f"input {value.name!r} is a tensor of strings: expected one of numbers")
    if not tensor.HasField("shape"):
        return DeclaredInput(value.name, None)
    return DeclaredInput(
        value.name,
        tuple(
            dim.dim_value if dim.dim_value > 0 else dim.dim_param.strip("?") or None
            for dim in tensor.shape.dim
        ),
    )


def input_values(
    model: "onnx.ModelProto", given: Mapping[str, Any], dims: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """Bring values of inputs into the types and shapes that the model declares.

    ``given``: values by the inputs' names. A scalar fills a shape that is known. ``dims``: extents
    by the names that the model gives them. Raises ``ModelError`` if an input is unknown, or a value
    does not fit.
    """
    import onnx

    inputs = {value.name: value for value in true_inputs(model)}
    if unknown := sorted(set(given) - set(inputs)):
        raise ModelError(
            f"constants names the input {unknown[0]!r}: the model has {', '.join(inputs)}"
        )
    values = {}
    for name, value in given.items():
        extents = declared_input(inputs[name]).extents
        kind = onnx.helper.tensor_dtype_to_np_dtype(inputs[name].type.tensor_type.elem_type)
        try:
            array = np.asarray(value).astype(kind)
        except (TypeError, ValueError) as error:
            raise ModelError(f"constants gives {name!r} the value {value!r}: {error}") from error
        if extents is not None:
            known = [dims.get(each, each) if isinstance(each, str) else each for each in extents]
            shape = [each for each in known if isinstance(each, int)]
            if not array.shape and len(shape) == len(extents):
                array = np.full(shape, array)
            fits = len(known) == array.ndim and all(
                not isinstance(each, int) or each == extent
                for each, extent in zip(known, array.shape, strict=True)
            )
            if not fits:
                shown = ", ".join("?" if each is None else str(each) for each in known)
                raise ModelError(
                    f"constants gives {name!r} a value of shape {array.shape}: the model has "
                    f"({shown}), so that a list of that shape is expected"
                )
        values[name] = array
    return values

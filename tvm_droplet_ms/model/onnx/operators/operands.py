# SPDX-License-Identifier: Apache-2.0
"""Questions of converters on the inputs of a node."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .folding import as_array
from .refusal import UnknownExtent

Array = np.ndarray[Any, Any]


def constant_input(inputs: Sequence[Any], index: int, name: str) -> Array | None:
    """The values of an input that has to be constant. None if it is not given.

    Raises ``UnknownExtent``, which names it, if it is not constant.
    """
    value = inputs[index] if index < len(inputs) else None
    if value is None:
        return None
    array = as_array(value)
    if array is None:
        raise UnknownExtent(
            f"its input {name!r} is not constant, and the extents of the result depend on it", index
        )
    return array


def shape_of(value: Any) -> list[int]:
    """The extents of a tensor. Raises ``UnknownExtent`` if one is not known."""
    try:
        return [int(extent) for extent in value.ty.shape]
    except (AttributeError, TypeError) as error:
        raise UnknownExtent("the extents of an input are not known") from error


def dtype_of(value: Any) -> str:
    """The element type of a tensor."""
    return str(value.ty.dtype)


def text(attributes: dict[str, Any], name: str, default: str) -> str:
    """An attribute that is a string."""
    value = attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)

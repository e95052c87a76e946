# SPDX-License-Identifier: Apache-2.0
"""Helpers that read a node's inputs and attributes for converters, and the converters' errors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .folding import as_array

Array = np.ndarray[Any, Any]


class UnsupportedNode(ValueError):
    """A node cannot be converted.

    A converter states the reason ("its direction is 'x'"). The importer puts the node's name and
    operator in front.
    """

    remedy = "export the model without it"


class StringValues(UnsupportedNode):
    """A node reads or returns strings."""

    remedy = (
        "strings are not supported, train the model with integers in their place, or delete the "
        "output that is made of them from model.graph.output"
    )


class UnknownExtent(UnsupportedNode):
    """An extent is not known before the model runs: it depends on the values of some tensors.

    ``index``: the input of the node that decides the extent. None if any input may. ``values``: the
    names of the graph values that decide the extent; the importer fills them in.
    """

    def __init__(
        self, message: str, index: int | None = None, values: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.index = index
        self.values = values


class WrongExtent(UnsupportedNode):
    """Extents do not fit each other."""


def constant_input(inputs: Sequence[Any], index: int, name: str) -> Array | None:
    """The values of an input that has to be constant. None if the input is omitted.

    ``name``: the input's name, for the error. Raises ``UnknownExtent`` if the input is not
    constant.
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
    """The extents of a tensor. Raises ``UnknownExtent`` if an extent is not known."""
    try:
        return [int(extent) for extent in value.ty.shape]
    except (AttributeError, TypeError) as error:
        raise UnknownExtent("the extents of an input are not known") from error


def dtype_of(value: Any) -> str:
    """The element type of a tensor."""
    return str(value.ty.dtype)


def text(attributes: dict[str, Any], name: str, default: str) -> str:
    """The value of a string attribute."""
    value = attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)

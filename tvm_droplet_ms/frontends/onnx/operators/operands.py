# SPDX-License-Identifier: Apache-2.0
"""The table of converters, and what they share: the reading of operands, and their errors.

A converter returns the value of a node, or a tuple of its values. It takes the block builder, the
inputs (None for an omitted one, and beyond the last), and the attributes. The attribute
"tvm_custom" describes the node: ``opset``, ``outputs`` (the names of the outputs, "" for one that
nothing reads) and their number, ``num_outputs``.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend

from .folding import as_array

Array = np.ndarray[Any, Any]
Attributes = dict[str, Any]
Converter = Callable[[Any, Any, Attributes], Any]

_CONVERTERS: dict[tuple[str, str], dict[int, Converter]] = {}
"""The converters of each operator of a domain, by the first version that they are for."""


def converts(*operators: str, domain: str = "", since: int = 1) -> Callable[[Converter], Converter]:
    """Register a function as the converter of operators, from a version of their domain on."""

    def register(function: Converter) -> Converter:
        for operator in operators:
            _CONVERTERS.setdefault((domain, operator), {})[since] = function
        return function

    return register


def converter_of(operator: str, domain: str = "", opset: int = 1) -> Converter | None:
    """The converter of an operator for a version; None if this package has none."""
    versions = _CONVERTERS.get((domain, operator))
    if versions is None:
        return None
    return versions[max((each for each in versions if each <= opset), default=min(versions))]


def has_tvms(operator: str) -> bool:
    """True if TVM has a converter of an operator."""
    return operator in _tvms()


def tvms(operator: str, bb: Any, inputs: Iterable[Any], attr: Attributes, opset: int = 0) -> Any:
    """Convert with TVM's converter of an operator.

    ``opset``: the version; 0 for that of the node.
    """
    convert = _tvms()[operator].get_converter(opset or attr["tvm_custom"]["opset"])
    return convert(bb, _endless(inputs), attr, [{}, {}])


def standard(operator: str, bb: Any, inputs: Iterable[Any], attr: Attributes) -> Any:
    """Convert a standard operator of the node's version: this package's converter, or TVM's."""
    convert = converter_of(operator, opset=attr["tvm_custom"]["opset"])
    if convert is None:
        return tvms(operator, bb, inputs, attr)
    return convert(bb, _endless(inputs), attr)


def _endless(inputs: Iterable[Any]) -> Any:
    """A list that has None beyond its end."""
    given = onnx_frontend.onnx_input()
    given.extend(inputs)
    return given


@functools.cache
def _tvms() -> dict[str, Any]:
    found: dict[str, Any] = onnx_frontend._get_convert_map()
    return found


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


NOT_CONSTANT = "its input '{}' is not constant, and the extents of the result depend on it"
"""The reason of an ``UnknownExtent``, with the name of an input."""


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
        raise UnknownExtent(NOT_CONSTANT.format(name), index)
    return array


def shape_of(value: Any) -> list[int]:
    """The extents of a tensor. Raises ``UnknownExtent`` if an extent is not known."""
    try:
        return [int(extent) for extent in value.ty.shape]
    except (AttributeError, TypeError) as error:
        raise UnknownExtent("the extents of an input are not known") from error


def extents_of(value: Any) -> list[int | None]:
    """The extents of a tensor; None for each that is not known. Empty if the rank is not known."""
    shape = value.ty.shape
    if not isinstance(shape, relax.ShapeExpr):
        return [None] * max(value.ty.ndim, 0)
    return [getattr(extent, "value", None) for extent in shape]


def dtype_of(value: Any) -> str:
    """The element type of a tensor."""
    return str(value.ty.dtype)


def text(attributes: dict[str, Any], name: str, default: str) -> str:
    """The value of a string attribute."""
    value = attributes.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


def number(value: float, like: Any) -> Any:
    """A number in the type of a tensor."""
    return relax.const(value, dtype_of(like))


def constant(values: Any, dtype: str | None = None) -> Any:
    """A constant of an array, or of numbers in a given type."""
    array = np.asarray(values) if dtype is None else np.asarray(values).astype(dtype)
    return relax.const(array, str(array.dtype))


def float32(values: Any) -> Any:
    """A constant of float32."""
    return constant(values, "float32")


def integers(values: Any) -> Any:
    """A constant of int64."""
    return constant(values, "int64")


def fields(bb: Any, value: Any, count: int) -> list[Any]:
    """The fields of a tuple."""
    found = value if isinstance(value, relax.Var) else bb.emit(value)
    return [bb.emit(relax.TupleGetItem(found, n)) for n in range(count)]


def part(value: Any, axis: int, start: int, end: int) -> Any:
    """A slice of a tensor along an axis."""
    return relax.op.strided_slice(value, [axis], [start], [end])


def parts(bb: Any, value: Any, axis: int, sizes: Sequence[int]) -> list[Any]:
    """Split a tensor into parts of given sizes along an axis."""
    ends = np.cumsum(sizes).tolist()
    return [bb.emit(part(value, axis, end - size, end)) for size, end in zip(sizes, ends)]


def windows_of(attr: dict[str, Any], rank: int) -> tuple[list[int], list[int], list[int]]:
    """The strides and dilations of a node's windows, and the padding before and after each axis."""
    ones = [1] * rank
    strides, dilations = (list(attr.get(name, ones)) for name in ("strides", "dilations"))
    return strides, dilations, list(attr.get("pads", [0] * (2 * rank)))

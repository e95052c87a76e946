# SPDX-License-Identifier: Apache-2.0
"""The factors of an attention, as views of earlier tensors: transposed, reshaped, or sliced."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tvm import relax
from tvm.tirx import IntImm

from ...bindings import Bindings, Expr, is_float32, operator_name, static_shape
from ...decoding.caches import CAST, HALVES
from ...folding.numpy_folding import RESHAPES
from ...layout.transposes import axes_of


@dataclass(frozen=True)
class View:
    """The layout of a view in another tensor, which is contiguous.

    - ``offset``: the place of the view's first element in the tensor.
    - ``shape``, ``strides``: the view's extents, and its strides in elements.
    """

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def place(self, *at: Any) -> Any:
        """Return the place of an element; its indices are integers or integer expressions."""
        terms = [i * stride for i, stride in zip(at, self.strides, strict=True) if stride]
        return sum(terms, self.offset)


class Viewed:
    """A tensor without data to which NumPy operations are applied."""

    def __init__(self, shape: Sequence[int]) -> None:
        self._start = self._array = np.empty(tuple(shape), np.int8)

    def apply(self, operation: Callable[[np.ndarray], np.ndarray]) -> bool:
        """Apply an operation; return False, and do nothing, if it would copy elements."""
        result = operation(self._array)
        if not np.may_share_memory(result, self._start):
            return False
        self._array = result
        return True

    def view(self) -> View:
        """Return the layout of the result in the original tensor."""
        start, array = (each.__array_interface__["data"][0] for each in (self._start, self._array))
        return View(array - start, self._array.shape, self._array.strides)


Shape = tuple[int, ...]
Operation = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Operand:
    """A factor of an attention: ``scale`` times a view of an earlier tensor.

    ``heads``: the number of heads that the kernel's rows join. It is above 1 only for a mask, whose
    view then has an additional axis for the heads before the rows.
    """

    source: Expr
    view: View
    scale: float = 1.0
    heads: int = 1


def shape_of(expr: Expr) -> Shape:
    """Return the shape of a tensor; empty if it is not known."""
    return static_shape(expr) or ()


def scalar_of(bindings: Bindings, expr: Expr) -> float | None:
    """Return the value of a constant with one element; None for anything else."""
    array = bindings.array_of(expr)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def operand_of(bindings: Bindings, expr: Expr, shape: Shape, *, may_scale: bool = True) -> Operand:
    """Return a factor of a product as a view of an earlier tensor.

    ``shape``: its shape in the kernel, which differs at most in the batch axes.
    """
    steps = list(_steps(bindings, expr, may_scale))
    # Go back as far as possible without moving elements.
    for count in range(len(steps), -1, -1):
        source = steps[count - 1].source if count else expr
        viewed = Viewed(shape_of(source))
        operations = [step.operation for step in reversed(steps[:count])]
        operations.append(_reshape_to(shape))
        if all(viewed.apply(operation) for operation in operations):
            scale = math.prod(step.factor for step in steps[:count])
            return Operand(source, viewed.view(), scale)
    raise AssertionError("a reshape of the batches moves no element")


def mask_of(expr: Expr, own: Shape, shape: Shape) -> Operand | None:
    """Return a mask as a view of its tensor.

    ``own``: the shape to which it is broadcast. ``shape``: the shape of the scores in the kernel.
    It differs at most in the batch axes, and in rows that join several heads. Returns None if the
    mask has no view with this shape.
    """
    viewed = Viewed(shape_of(expr))
    if not viewed.apply(lambda array: np.broadcast_to(array, own)):
        return None
    if viewed.apply(_reshape_to(shape)):
        return Operand(expr, viewed.view())
    *batch, rows, columns = shape
    if rows % own[-2]:
        return None
    heads = rows // own[-2]
    if not viewed.apply(_reshape_to((*batch, heads, own[-2], columns))):
        return None
    return Operand(expr, viewed.view(), heads=heads)


def _reshape_to(shape: Shape) -> Operation:
    # Pass the shape by position: NumPy 2.0 does not have its keyword yet.
    return lambda array: array.reshape(shape)


class Step(NamedTuple):
    """A step from a source to a value: an operation on arrays, and a factor."""

    source: Expr
    operation: Operation
    factor: float = 1.0


def _steps(bindings: Bindings, expr: Expr, may_scale: bool) -> Iterator[Step]:
    """Yield the steps that compute an operand, the last one first."""
    while True:
        value = bindings.value_of(expr)
        step = _step(bindings, value)
        if step is None and may_scale:
            step = scaling_of(bindings, value)
        if step is None or static_shape(step.source) is None:
            return
        if str(step.source.ty.dtype) not in ("float32", *HALVES):
            return
        yield step
        expr = step.source


def scaling_of(bindings: Bindings, value: Expr) -> Step | None:
    """Return the step of a multiplication or division by a constant; None for other values."""
    name = operator_name(value)
    if name not in ("relax.multiply", "relax.divide"):
        return None
    for source, operand in (value.args, value.args[::-1])[: 1 if name == "relax.divide" else 2]:
        number = scalar_of(bindings, operand)
        if number is not None and shape_of(value) == shape_of(source):
            if name == "relax.multiply":
                return Step(source, lambda array: array, number)
            return Step(source, lambda array: array, 1 / number) if number else None
    return None


def _step(bindings: Bindings, value: Expr) -> Step | None:
    """Return the step of an operation that may be a view; None for other values."""
    name = operator_name(value)
    if name == CAST and is_float32(value) and str(value.args[0].ty.dtype) in HALVES:
        return Step(value.args[0], lambda array: array)
    if isinstance(value, relax.TupleGetItem):
        split = bindings.call_of(value.tuple_value, "relax.split")
        return None if split is None else _split_step(split, value.index)
    if name in RESHAPES:
        return Step(value.args[0], _reshape_to(shape_of(value)))
    if name == "relax.permute_dims":
        axes = axes_of(value, value.args[0].ty.ndim)
        return Step(value.args[0], partial(np.transpose, axes=axes))
    if name == "relax.take" and value.attrs.axis is not None:
        number = bindings.array_of(value.args[1])
        if number is not None and number.ndim == 0:
            axis = int(value.attrs.axis) % value.args[0].ty.ndim
            # For indices out of bounds, the result depends on the mode.
            if 0 <= int(number) < (*shape_of(value.args[0]), 0)[axis]:
                return Step(value.args[0], partial(_part, axis=axis, part=int(number)))
    if name == "relax.strided_slice":
        return _slice_step(value)
    return None


def _slice_step(value: relax.Call) -> Step | None:
    """Return the step to a slice; None if its bounds are not constant."""
    numbers = [getattr(each, "fields", [None]) for each in value.args[1:]]
    if not all(isinstance(number, IntImm) for each in numbers for number in each):
        return None
    along, *bounds = ([int(number) for number in each] for each in numbers)
    parts = {axis: slice(*each) for axis, *each in zip(along, *bounds, strict=True)}
    return Step(value.args[0], lambda array: _slice(array, parts))


def _split_step(split: relax.Call, number: int) -> Step | None:
    """Return the step to one part of a split; None if the shape is not known."""
    shape = shape_of(split.args[0])
    if not shape:
        return None
    axis = int(split.attrs.axis) % len(shape)
    sections = split.attrs.indices_or_sections
    if isinstance(sections, IntImm):
        size = -(-shape[axis] // int(sections))
        bounds = [size * n for n in range(int(sections))]
    else:
        bounds = [0, *(int(end) for end in sections)]
    part = slice(*[*bounds, shape[axis]][number:][:2])
    return Step(split.args[0], partial(_part, axis=axis, part=part))


def _slice(array: np.ndarray, parts: Mapping[int, slice]) -> np.ndarray:
    for axis, part in parts.items():
        array = _part(array, axis % array.ndim, part)
    return array


def _part(array: np.ndarray, axis: int, part: int | slice) -> np.ndarray:
    result: np.ndarray = array[(slice(None),) * axis + (part,)]
    return result

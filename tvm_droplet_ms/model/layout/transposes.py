# SPDX-License-Identifier: Apache-2.0
"""Transposes and reshapes, moved after the operations that follow, merged, or removed.

A frontend multiplies matrices of two axes, and adds and activates tensors of three axes. 3D
convolutions may be computed in 2D. ``FuseOps`` does not look through the reshape between them: a
GELU and a residual then become separate kernels, which read and write the whole tensor again.
"""

from collections.abc import Sequence

import numpy as np

import tvm
from tvm import relax

from ..bindings import (
    Bindings,
    Expr,
    Var,
    array_of,
    constant,
    operator_name,
    relax_functions,
    relax_operators,
    static_shape,
)
from ..rewriting import Emit, binding_pass, operator_pass

NAME = "relax.permute_dims"
RESHAPE = "relax.reshape"
BROADCAST = "relax.broadcast_to"


def axes_of(call: relax.Call, rank: int) -> tuple[int, ...]:
    """Return the axes of a ``relax.permute_dims`` as nonnegative numbers.

    ``rank``: the rank of its operand. Returns the operand's axis for each axis of the result.
    """
    if call.attrs.axes is None:
        return tuple(reversed(range(rank)))
    return tuple(int(axis) % rank for axis in call.attrs.axes)


def moves_data(shape: Sequence[int], axes: Sequence[int]) -> bool:
    """True if a transpose changes the order of elements in memory.

    It does not if the axes with extents other than 1 stay in order.
    """
    large = [axis for axis in axes if shape[axis] != 1]
    return large != sorted(large)


def merged_reshape(bindings: Bindings, call: relax.Call) -> Expr | None:
    """Merge a reshape with the reshape before it. Returns None if there is nothing to merge."""
    inner = bindings.call_of(call.args[0], RESHAPE)
    source = call.args[0] if inner is None else inner.args[0]
    shape = static_shape(call)
    if shape is not None and static_shape(source) == shape:
        return source
    return None if shape is None or inner is None else relax.op.reshape(source, shape)


@operator_pass("MergeTransposes", [NAME, RESHAPE, BROADCAST])
def merge_transposes(bindings: Bindings, value: Expr, _emit: Emit) -> Expr | None:
    """Make a pass that merges two successive transposes into one, and two successive reshapes.

    Two operations that cancel each other are removed, and so is a broadcast to the same shape. A
    transpose that moves no data, such as (1, 1, 1, C) to (1, C, 1, 1), becomes a reshape, which
    costs nothing at run time. It leaves inner operations without other users as dead code.
    """
    if operator_name(value) == RESHAPE:
        return merged_reshape(bindings, value)
    if operator_name(value) == BROADCAST:
        shape = static_shape(value)
        same = shape is not None and static_shape(value.args[0]) == shape
        return value.args[0] if same else None
    if value.ty.ndim < 0:
        return None
    source, axes = value.args[0], axes_of(value, value.ty.ndim)
    inner = bindings.call_of(source, NAME)
    if inner is not None:
        inner_axes = axes_of(inner, len(axes))
        source, axes = inner.args[0], tuple(inner_axes[axis] for axis in axes)
    if axes == tuple(range(len(axes))):
        return source
    shape = static_shape(source)
    if shape is not None and not moves_data(shape, axes):
        return relax.op.reshape(source, [shape[axis] for axis in axes])
    return None if inner is None else relax.op.permute_dims(source, axes)


PAD, SPLIT = "relax.nn.pad", "relax.split"
CHANNELS_FIRST = {3: (0, 2, 1), 4: (0, 3, 1, 2)}
CHANNELS_LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1)}
"""The axes of the transposes between layouts, by the number of axes."""

ELEMENTWISE = relax_operators("""
    abs add astype ceil clip cos divide equal erf exp floor greater greater_equal isfinite isinf
    isnan less less_equal log logical_and logical_not logical_or maximum minimum multiply negative
    nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu nn.selu nn.silu nn.softplus not_equal power round
    rsqrt sigmoid sign sin sqrt square subtract tan tanh where
    """)


POOLS = relax_functions("nn.max_pool2d nn.avg_pool2d")


def _pooled(value: Expr, source: Expr) -> Expr:
    """Return the same pool of an image in NHWC."""
    attrs = value.attrs
    sizes = (attrs.pool_size, attrs.strides, attrs.padding, attrs.dilation)
    return POOLS[operator_name(value)](
        source,
        *([int(size) for size in each] for each in sizes),
        ceil_mode=bool(attrs.ceil_mode),
        count_include_pad=bool(attrs.count_include_pad),
        layout="NHWC",
        out_layout="NHWC",
    )


class _SinkingTransposes:
    """The rewrite of one block."""

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings
        self._passes_on = {
            var
            for var, value in bindings.values.items()
            if operator_name(value) in {*ELEMENTWISE, *POOLS, "relax.concat", PAD, SPLIT, NAME}
        }
        self._splits: dict[Var, Var] = {}

    def _source(self, operand: Expr) -> Expr | None:
        """Return the NHWC source of an operand.

        None if the operand is not transposed from NHWC, or if another operation needs the
        transpose.
        """
        call = self._bindings.call_of(operand, NAME)
        rank = 0 if call is None else call.ty.ndim
        if call is None or axes_of(call, rank) != CHANNELS_FIRST.get(rank):
            return None
        users = self._bindings.users.get(operand, [])
        return call.args[0] if self._passes_on.issuperset(users) else None

    def _operand(self, operand: Expr, rank: int) -> Expr | None:
        """Return an operand in NHWC, or None if that needs a transpose at run time."""
        if not isinstance(operand.ty, relax.TensorType) or operand.ty.ndim == 0:
            return None if isinstance(operand, relax.Var) else operand
        values = array_of(operand)
        if values is None:
            # An operand with fewer axes than the result is broadcast along the first axes.
            return self._source(operand) if operand.ty.ndim == rank else None
        axes = CHANNELS_LAST.get(rank)
        if axes is None or values.ndim != rank:
            return None
        return constant(np.transpose(values, axes))

    def _operands(self, operands: list[Expr], rank: int) -> list[Expr] | None:
        if all(self._source(operand) is None for operand in operands):
            return None
        moved = [self._operand(operand, rank) for operand in operands]
        found = [operand for operand in moved if operand is not None]
        return found if len(found) == len(moved) else None

    def _split_part(self, part: relax.TupleGetItem, emit: Emit) -> Expr | None:
        """Return a part of a split in NHWC, or None if its split cannot move to NHWC."""
        split = self._bindings.call_of(part.tuple_value, SPLIT)
        source = None if split is None else self._source(split.args[0])
        if split is None or source is None:
            return None
        if part.tuple_value not in self._splits:
            sections = split.attrs.indices_or_sections
            if isinstance(sections, tvm.tirx.IntImm):
                sections = int(sections)
            axes = CHANNELS_FIRST[source.ty.ndim]
            moved = relax.op.split(source, sections, axis=axes[int(split.attrs.axis)])
            self._splits[part.tuple_value] = emit(moved)
        return emit(relax.TupleGetItem(self._splits[part.tuple_value], part.index))

    def __call__(self, _var: Var, value: Expr, emit: Emit) -> Expr | None:
        """Return the transpose of the same operation in NHWC, or None for other operations."""
        name = operator_name(value)
        if isinstance(value, relax.TupleGetItem):
            part = self._split_part(value, emit)
            if part is None:
                return None
            return relax.op.permute_dims(part, CHANNELS_FIRST[part.ty.ndim])
        if name in ELEMENTWISE:
            operands = self._operands(list(value.args), value.ty.ndim)
            if operands is None:
                return None
            moved = relax.Call(value.op, operands, value.attrs)
        elif name == PAD:
            source = self._source(value.args[0])
            if source is None:
                return None
            attrs, axes = value.attrs, CHANNELS_LAST[value.ty.ndim]
            widths = [int(attrs.pad_width[2 * axis + end]) for axis in axes for end in (0, 1)]
            moved = relax.op.nn.pad(source, widths, attrs.pad_mode, float(attrs.pad_value))
        elif name in POOLS:
            source = self._source(value.args[0])
            if source is None or str(value.attrs.layout) != "NCHW":
                return None
            moved = _pooled(value, source)
        elif name == "relax.concat" and isinstance(value.args[0], relax.Tuple):
            rank = value.ty.ndim
            operands = self._operands(list(value.args[0].fields), rank)
            if operands is None or value.attrs.axis is None:
                return None
            moved = relax.op.concat(operands, axis=CHANNELS_FIRST[rank][int(value.attrs.axis)])
        else:
            return None
        return relax.op.permute_dims(emit(moved), CHANNELS_FIRST[value.ty.ndim])


def sink_transposes() -> tvm.transform.Pass:
    """Make a pass that moves transposes from NHWC to NCHW after the operations that follow them.

    After an operation without a rule, ``ConvertLayout`` continues in NCHW up to the next
    convolution. Elementwise operations, pads, pools, splits and concatenations compute the same in
    NHWC. The transpose then meets the transpose in front of the next convolution
    (:func:`merge_transposes`). A transpose with any other user does not move.
    """
    return binding_pass("SinkTransposes", _SinkingTransposes, [NAME])


PRODUCTS = ("relax.matmul", "relax.nn.conv2d")

_UNARY = relax_operators("nn.relu nn.gelu nn.gelu_tanh nn.silu sigmoid tanh erf exp")
_BINARY = relax_operators("add subtract multiply divide maximum minimum")


def sink_reshapes() -> tvm.transform.Pass:
    """Make a pass that moves reshapes of products after the arithmetic that follows them.

    It reshapes the other operand instead, which moves no element.
    """
    return binding_pass("SinkReshapes", _SinkingReshapes, PRODUCTS)


class _SinkingReshapes:
    """Moves the reshapes of a block."""

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings
        self._products: set[Var] = set()

    def __call__(self, var: Var, value: Expr, emit: Emit) -> Expr | None:
        name = operator_name(value)
        if name in PRODUCTS:
            self._products.add(var)
        elif name == RESHAPE:
            return merged_reshape(self._bindings, value)
        elif name in _UNARY | _BINARY:
            if any(operand in self._products for operand in value.args):
                self._products.add(var)
            return self._computed_before(value, emit)
        return None

    def _computed_before(self, value: Expr, emit: Emit) -> Expr | None:
        """Apply an operation before the reshape of its operand, and return the reshape, or None."""
        shape = static_shape(value)
        for place, operand in enumerate(value.args):
            product = self._product(operand)
            if product is None or shape is None or static_shape(operand) != shape:
                continue
            others = [each for n, each in enumerate(value.args) if n != place]
            reshaped = [self._reshaped(each, shape, product, emit) for each in others]
            if None in reshaped:
                continue
            reshaped.insert(place, product)
            result = emit(relax.Call(value.op, reshaped, value.attrs))
            self._products.add(result)
            return relax.op.reshape(result, shape)
        return None

    def _product(self, operand: Expr) -> Var | None:
        """Return the source of an operand that reshapes a result of a product, or None."""
        reshape = self._bindings.call_of(operand, RESHAPE)
        return None if reshape is None or reshape.args[0] not in self._products else reshape.args[0]

    def _reshaped(self, operand: Expr, shape: tuple[int, ...], product: Var, emit: Emit) -> Expr:
        """Return the other operand in the shape of the product, or None if that is impossible."""
        wanted, own = static_shape(product), static_shape(operand)
        values = self._bindings.array_of(operand)
        if wanted is None or own is None:
            return None
        if own == shape:
            if values is not None:
                return constant(values.reshape(wanted))
            inner = self._bindings.call_of(operand, RESHAPE)
            source = operand if inner is None else inner.args[0]
            if static_shape(source) == wanted:
                return source
            return emit(relax.op.reshape(source, wanted))
        is_row = own[-1:] == wanted[-1:] == shape[-1:] and all(n == 1 for n in own[:-1])
        if values is not None and (values.size == 1 or is_row):
            return constant(values.reshape(values.shape[-1:] if is_row else ()))
        return None

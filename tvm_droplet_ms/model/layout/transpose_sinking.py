# SPDX-License-Identifier: Apache-2.0
"""Transposes back to NCHW or NCW, moved behind elementwise operations, pads, splits and such."""

import numpy as np

import tvm
from tvm import relax

from ..bindings import Bindings, Expr, Var, array_of, constant, operator_name
from ..rewriting import Emit, binding_pass
from .transposes import NAME, axes_of

PAD, SPLIT = "relax.nn.pad", "relax.split"
CHANNELS_FIRST = {3: (0, 2, 1), 4: (0, 3, 1, 2)}
CHANNELS_LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1)}
"""The axes of the transposes between layouts, by the number of axes."""

ELEMENTWISE = {
    f"relax.{name}"
    for name in """
    abs add astype ceil clip cos divide equal erf exp floor greater greater_equal isfinite isinf
    isnan less less_equal log logical_and logical_not logical_or maximum minimum multiply negative
    nn.gelu nn.gelu_tanh nn.leakyrelu nn.relu nn.selu nn.silu nn.softplus not_equal power round
    rsqrt sigmoid sign sin sqrt square subtract tan tanh where
    """.split()
}


class _Sinking:
    """The rewrite of one function."""

    def __init__(self, bindings: Bindings) -> None:
        self._bindings = bindings
        self._passes_on = {
            var
            for var, value in bindings.values.items()
            if operator_name(value) in {*ELEMENTWISE, "relax.concat", PAD, SPLIT, NAME}
        }
        self._splits: dict[Var, Var] = {}

    def _source(self, operand: Expr) -> Expr | None:
        """Return what an operand is in NHWC.

        None if it is not transposed from there, or if something else needs the transpose.
        """
        call = self._bindings.call_of(operand, NAME)
        rank = 0 if call is None else call.ty.ndim
        if call is None or axes_of(call, rank) != CHANNELS_FIRST.get(rank):
            return None
        users = self._bindings.users.get(operand, [])
        return call.args[0] if self._passes_on.issuperset(users) else None

    def _operand(self, operand: Expr, rank: int) -> Expr | None:
        """Return an operand in NHWC. None if it cannot be had without a transpose at run time."""
        if not isinstance(operand.ty, relax.TensorType) or operand.ty.ndim == 0:
            return None if isinstance(operand, relax.Var) else operand
        values = array_of(operand)
        if values is None:
            # Of fewer axes than the result, it is broadcast along the first ones.
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
        """Return a part of what is split in NHWC. None if it is no part of such a split."""
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

    def rewrite(self, _var: Var, value: Expr, emit: Emit) -> Expr | None:
        """Return the transpose of the operation in NHWC."""
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
    """Make a pass that moves transposes from NHWC to NCHW behind the operations that follow them.

    Behind an operation for which ``ConvertLayout`` has no rule, it goes on in NCHW up to the next
    convolution. If there are only elementwise operations, pads, splits and concatenations up to
    there, as behind a leaky ReLU or a channel shuffle, they give the same in NHWC, and the
    transpose then meets the one in front of the convolution
    (:func:`~tvm_droplet_ms.model.layout.transposes.merge_transposes`). Returns the pass. A
    transpose stays where anything else uses it too.
    """
    return binding_pass("SinkTransposes", lambda bindings: _Sinking(bindings).rewrite, [NAME])

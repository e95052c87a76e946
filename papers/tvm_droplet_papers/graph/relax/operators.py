# SPDX-License-Identifier: Apache-2.0
"""Reads and writes Relax calls of the operators that rules may match."""

from collections.abc import Callable, Sequence

from tvm import relax, tirx
from tvm.ir import TupleType as RelaxTuple
from tvm_droplet_ms.model.bindings import Expr, operator_name

from ..equality.language import Operator, operator
from .attributes import (
    NotRead,
    Operands,
    Reader,
    Writer,
    axes_in,
    ints,
    number,
    positive,
    rank_of,
    require,
    shape_of,
)
from .layers import LAYERS


def _read_strided_slice(call: relax.Call) -> Operator:
    shape = shape_of(call.args[0])
    axes = axes_in(call.args[1], len(shape))
    strides = ints(call.args[4]) if len(call.args) > 4 else (1,) * len(axes)
    require(bool(axes) and min(strides) > 0 and not call.attrs.assume_inbound)
    pieces = zip(axes, ints(call.args[2]), ints(call.args[3]), strides, strict=True)
    bounds = [slice(b, e, s).indices(shape[axis]) for axis, b, e, s in pieces]
    return operator(
        "strided_slice",
        axes=axes,
        begin=tuple(bound[0] for bound in bounds),
        end=tuple(bound[1] for bound in bounds),
        strides=strides,
    )


def _write_strided_slice(op: Operator, args: Operands) -> Expr:
    names = ["axes", "begin", "end"]
    if any(stride != 1 for stride in op.get("strides")):
        names.append("strides")
    return relax.op.strided_slice(args[0], *[list(op.get(name)) for name in names])


def _read_split(call: relax.Call) -> Operator:
    axis = positive(call.attrs.axis, rank_of(call.args[0]))
    sections = call.attrs.indices_or_sections
    extent = shape_of(call.args[0])[axis]
    if isinstance(sections, int | tirx.IntImm):
        require(extent % int(sections) == 0)
        step = extent // int(sections)
        return operator("split", axis=axis, sections=tuple(range(step, extent, step)))
    return operator("split", axis=axis, sections=ints(sections))


def _write_split(op: Operator, args: Operands) -> Expr:
    return relax.op.split(args[0], list(op.get("sections")), axis=op.get("axis"))


def _fields(expr: Expr) -> Sequence[Expr]:
    """The tensors of an inline tuple. A tuple in a variable would be a single operand."""
    require(isinstance(expr, relax.Tuple))
    return list(expr.fields)


def _read_einsum(call: relax.Call) -> Operator:
    _fields(call.args[0])
    return operator("einsum", subscripts=str(call.attrs.subscripts))


def _read_axis(name: str, result: bool = False) -> Callable[[relax.Call], Operator]:
    """Make a reader for operators whose only attribute is "axis".

    The axis is an axis of the first operand, or of the result if ``result`` is set, whose rank is
    one larger.
    """

    def read(call: relax.Call) -> Operator:
        first = call.args[0]
        if isinstance(first.ty, RelaxTuple):
            first = _fields(first)[0]
        rank = rank_of(first) + result
        axis = 0 if call.attrs.axis is None else call.attrs.axis
        return operator(name, axis=positive(axis, rank))

    return read


def _read_reduction(name: str) -> Callable[[relax.Call], Operator]:
    def read(call: relax.Call) -> Operator:
        axes = axes_in(call.attrs.axis, rank_of(call.args[0]))
        return operator(name, axis=axes, keepdims=bool(call.attrs.keepdims))

    return read


def _write_reduction(function: Callable[..., Expr]) -> Callable[[Operator, Operands], Expr]:
    return lambda op, args: function(args[0], list(op.get("axis")), op.get("keepdims"))


def _read_squeeze(call: relax.Call) -> Operator:
    shape = shape_of(call.args[0])
    ones = tuple(axis for axis, extent in enumerate(shape) if extent == 1)
    axes = ones if call.attrs.axis is None else axes_in(call.attrs.axis, len(shape))
    return operator("squeeze", axis=axes)


def _read_permute(call: relax.Call) -> Operator:
    rank = rank_of(call.args[0])
    axes = call.attrs.axes
    return operator("permute_dims", axes=axes_in(range(rank)[::-1] if axes is None else axes, rank))


def _read_pad(call: relax.Call) -> Operator:
    require(str(call.attrs.pad_mode) == "constant")
    flat = ints(call.attrs.pad_width)
    require(min(flat) >= 0)
    widths = tuple(zip(flat[::2], flat[1::2], strict=True))
    return operator("pad", widths=widths, value=float(call.attrs.pad_value))


def _write_pad(op: Operator, args: Operands) -> Expr:
    flat = [width for pair in op.get("widths") for width in pair]
    return relax.op.nn.pad(args[0], flat, pad_value=op.get("value"))


def _read_matmul(call: relax.Call) -> Operator:
    out = str(call.attrs.out_dtype or "")
    require(out in ("", "void", str(call.args[0].ty.dtype)))
    return operator("matmul")


def _read_clip(call: relax.Call) -> Operator:
    return operator("clip", min=number(call.args[1]), max=number(call.args[2]))


def _plain(name: str) -> Callable[[relax.Call], Operator]:
    return lambda call: operator(name)


def _on_all(function: Callable[..., Expr]) -> Callable[[Operator, Operands], Expr]:
    return lambda op, args: function(*args)


def _with_axis(function: Callable[..., Expr]) -> Callable[[Operator, Operands], Expr]:
    return lambda op, args: function(args[0], axis=op.get("axis"))


_ELEMENTWISE: dict[str, Callable[..., Expr]] = {
    "add": relax.op.add,
    "subtract": relax.op.subtract,
    "multiply": relax.op.multiply,
    "divide": relax.op.divide,
    "maximum": relax.op.maximum,
    "minimum": relax.op.minimum,
    "power": relax.op.power,
    "relu": relax.op.nn.relu,
    "gelu": relax.op.nn.gelu,
    "silu": relax.op.nn.silu,
    "sigmoid": relax.op.sigmoid,
    "tanh": relax.op.tanh,
    "sqrt": relax.op.sqrt,
    "exp": relax.op.exp,
    "erf": relax.op.erf,
    "negative": relax.op.negative,
}

_TABLE: dict[str, tuple[str, Reader, Writer]] = {
    **LAYERS,
    "softmax": ("relax.nn.softmax", _read_axis("softmax"), _with_axis(relax.op.nn.softmax)),
    "dropout": (
        "relax.nn.dropout",
        lambda call: operator("dropout", rate=float(call.attrs.rate)),
        lambda op, args: relax.op.nn.dropout(args[0], op.get("rate")),
    ),
    "matmul": ("relax.matmul", _read_matmul, _on_all(relax.op.matmul)),
    "einsum": (
        "relax.einsum",
        _read_einsum,
        lambda op, args: relax.op.einsum(tuple(args), op.get("subscripts")),
    ),
    "sum": ("relax.sum", _read_reduction("sum"), _write_reduction(relax.op.sum)),
    "mean": ("relax.mean", _read_reduction("mean"), _write_reduction(relax.op.mean)),
    "concat": (
        "relax.concat",
        _read_axis("concat"),
        lambda op, args: relax.op.concat(args, axis=op.get("axis")),
    ),
    "stack": (
        "relax.stack",
        _read_axis("stack", result=True),
        lambda op, args: relax.op.stack(args, axis=op.get("axis")),
    ),
    "strided_slice": ("relax.strided_slice", _read_strided_slice, _write_strided_slice),
    "split": ("relax.split", _read_split, _write_split),
    "reshape": (
        "relax.reshape",
        lambda call: operator("reshape", shape=shape_of(call)),
        lambda op, args: relax.op.reshape(args[0], op.get("shape")),
    ),
    "permute_dims": (
        "relax.permute_dims",
        _read_permute,
        lambda op, args: relax.op.permute_dims(args[0], list(op.get("axes"))),
    ),
    "expand_dims": (
        "relax.expand_dims",
        lambda call: operator("expand_dims", axis=axes_in(call.attrs.axis, rank_of(call))),
        lambda op, args: relax.op.expand_dims(args[0], list(op.get("axis"))),
    ),
    "squeeze": (
        "relax.squeeze",
        _read_squeeze,
        lambda op, args: relax.op.squeeze(args[0], list(op.get("axis"))),
    ),
    "broadcast_to": (
        "relax.broadcast_to",
        lambda call: operator("broadcast_to", shape=shape_of(call)),
        lambda op, args: relax.op.broadcast_to(args[0], op.get("shape")),
    ),
    "pad": ("relax.nn.pad", _read_pad, _write_pad),
    "clip": (
        "relax.clip",
        _read_clip,
        lambda op, args: relax.op.clip(args[0], op.get("min"), op.get("max")),
    ),
} | {
    name: (
        f"relax.nn.{name}" if name in ("relu", "gelu", "silu") else f"relax.{name}",
        _plain(name),
        _on_all(function),
    )
    for name, function in _ELEMENTWISE.items()
}

_READERS = {relax_name: reader for relax_name, reader, _ in _TABLE.values()}
_WRITERS = {name: writer for name, (_, _, writer) in _TABLE.items()}


def read_call(call: relax.Call) -> Operator | None:
    """Read a call as an operator that rules may match.

    ``call``: the call. Its type and the types of its operands are static. Returns None if the rules
    do not support the operator or the form of the call.
    """
    reader = _READERS.get(operator_name(call))
    if reader is None:
        return None
    try:
        return reader(call)
    except NotRead:
        return None


def write_call(op: Operator, operands: Sequence[Expr]) -> Expr:
    """Write an operator as a call.

    ``op``: an operator that :func:`read_call` may return, or "get".
    """
    if op.name == "get":
        return relax.TupleGetItem(operands[0], op.get("index"))
    return _WRITERS[op.name](op, list(operands))

# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Relax calls of the operators that rules name, read and written."""

from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, tirx

from ..model.bindings import Expr, operator_name
from .language import Operator, operator

Operands = list[Expr]


class _NotRead(Exception):
    """A call in a form that rules do not know. It is kept whole."""


def _ints(values: Any) -> tuple[int, ...]:
    if isinstance(values, relax.Tuple):
        values = values.fields
    if not all(isinstance(value, int | tirx.IntImm) for value in values):
        raise _NotRead
    return tuple(int(value) for value in values)


def _number(expr: Any) -> float:
    if not isinstance(expr, tirx.IntImm | tirx.FloatImm | int | float):
        raise _NotRead
    return float(getattr(expr, "value", expr))


def _positive(axis: Any, rank: int) -> int:
    return int(axis) % rank


def _axes(values: Any, rank: int) -> tuple[int, ...]:
    return tuple(range(rank)) if values is None else tuple(v % rank for v in _ints(values))


def _shape(expr: Expr) -> tuple[int, ...]:
    return _ints(expr.ty.shape)


def _rank(expr: Expr) -> int:
    return len(_shape(expr))


def _require(condition: bool) -> None:
    if not condition:
        raise _NotRead


def _read_conv2d(call: relax.Call) -> Operator:
    attrs = call.attrs
    layouts = [attrs.data_layout, attrs.kernel_layout, attrs.out_layout]
    _require(all(len(layout) == 4 and layout.isupper() for layout in layouts))
    _require(attrs.data_layout == attrs.out_layout)
    _require(not attrs.out_dtype or str(attrs.out_dtype) in ("void", str(call.args[0].ty.dtype)))
    return operator(
        "conv2d",
        strides=_ints(attrs.strides),
        padding=_ints(attrs.padding),
        dilation=_ints(attrs.dilation),
        groups=int(attrs.groups),
        layout=str(attrs.data_layout),
        kernel_layout=str(attrs.kernel_layout),
    )


def _write_conv2d(op: Operator, args: Operands) -> Expr:
    return relax.op.nn.conv2d(
        *args,
        strides=op.get("strides"),
        padding=op.get("padding"),
        dilation=op.get("dilation"),
        groups=op.get("groups"),
        data_layout=op.get("layout"),
        kernel_layout=op.get("kernel_layout"),
        out_layout=op.get("layout"),
    )


def _read_pool(name: str) -> Callable[[relax.Call], Operator]:
    def read(call: relax.Call) -> Operator:
        attrs = call.attrs
        _require(len(attrs.layout) == 4 and attrs.layout.isupper())
        _require(attrs.layout == attrs.out_layout)
        return operator(
            name,
            pool_size=_ints(attrs.pool_size),
            strides=_ints(attrs.strides),
            padding=_ints(attrs.padding),
            dilation=_ints(attrs.dilation),
            ceil_mode=bool(attrs.ceil_mode),
            count_include_pad=bool(attrs.count_include_pad),
            layout=str(attrs.layout),
        )

    return read


def _write_pool(function: Callable[..., Expr]) -> Callable[[Operator, Operands], Expr]:
    def write(op: Operator, args: Operands) -> Expr:
        return function(
            *args,
            pool_size=op.get("pool_size"),
            strides=op.get("strides"),
            padding=op.get("padding"),
            dilation=op.get("dilation"),
            ceil_mode=op.get("ceil_mode"),
            count_include_pad=op.get("count_include_pad"),
            layout=op.get("layout"),
            out_layout=op.get("layout"),
        )

    return write


def _read_batch_norm(call: relax.Call) -> Operator:
    attrs = call.attrs
    return operator(
        "batch_norm",
        axis=_positive(attrs.axis, _rank(call.args[0])),
        epsilon=float(attrs.epsilon),
        center=bool(attrs.center),
        scale=bool(attrs.scale),
        momentum=float(attrs.momentum),
        training=bool(attrs.training),
    )


def _write_batch_norm(op: Operator, args: Operands) -> Expr:
    return relax.op.nn.batch_norm(*args, **dict(op.attributes))


def _read_layer_norm(call: relax.Call) -> Operator:
    attrs = call.attrs
    # TVM's kernel scales and shifts whatever these two say.
    _require(bool(attrs.center) and bool(attrs.scale))
    axes = _axes(attrs.axes, _rank(call.args[0]))
    return operator("layer_norm", axes=axes, epsilon=float(attrs.epsilon))


def _write_layer_norm(op: Operator, args: Operands) -> Expr:
    return relax.op.nn.layer_norm(*args, axes=list(op.get("axes")), epsilon=op.get("epsilon"))


def _read_strided_slice(call: relax.Call) -> Operator:
    shape = _shape(call.args[0])
    axes = _axes(call.args[1], len(shape))
    strides = _ints(call.args[4]) if len(call.args) > 4 else (1,) * len(axes)
    _require(min(strides, default=1) > 0 and not call.attrs.assume_inbound)
    pieces = zip(axes, _ints(call.args[2]), _ints(call.args[3]), strides, strict=True)
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
    axis = _positive(call.attrs.axis, _rank(call.args[0]))
    sections = call.attrs.indices_or_sections
    extent = _shape(call.args[0])[axis]
    if isinstance(sections, int | tirx.IntImm):
        _require(extent % int(sections) == 0)
        step = extent // int(sections)
        return operator("split", axis=axis, sections=tuple(range(step, extent, step)))
    return operator("split", axis=axis, sections=_ints(sections))


def _write_split(op: Operator, args: Operands) -> Expr:
    return relax.op.split(args[0], list(op.get("sections")), axis=op.get("axis"))


def _read_axis(name: str, result: bool = False) -> Callable[[relax.Call], Operator]:
    """Read an operator with the one attribute "axis" of its first operand."""

    def read(call: relax.Call) -> Operator:
        first = call.args[0]
        rank = _rank(first.fields[0] if isinstance(first, relax.Tuple) else first) + result
        axis = 0 if call.attrs.axis is None else call.attrs.axis
        return operator(name, axis=_positive(axis, rank))

    return read


def _read_reduction(name: str) -> Callable[[relax.Call], Operator]:
    def read(call: relax.Call) -> Operator:
        axes = _axes(call.attrs.axis, _rank(call.args[0]))
        return operator(name, axis=axes, keepdims=bool(call.attrs.keepdims))

    return read


def _write_reduction(function: Callable[..., Expr]) -> Callable[[Operator, Operands], Expr]:
    return lambda op, args: function(args[0], list(op.get("axis")), op.get("keepdims"))


def _read_squeeze(call: relax.Call) -> Operator:
    shape = _shape(call.args[0])
    ones = tuple(axis for axis, extent in enumerate(shape) if extent == 1)
    axes = ones if call.attrs.axis is None else _axes(call.attrs.axis, len(shape))
    return operator("squeeze", axis=axes)


def _read_permute(call: relax.Call) -> Operator:
    rank = _rank(call.args[0])
    axes = call.attrs.axes
    return operator("permute_dims", axes=_axes(range(rank)[::-1] if axes is None else axes, rank))


def _read_pad(call: relax.Call) -> Operator:
    _require(str(call.attrs.pad_mode) == "constant")
    flat = _ints(call.attrs.pad_width)
    _require(min(flat) >= 0)
    widths = tuple(zip(flat[::2], flat[1::2], strict=True))
    return operator("pad", widths=widths, value=float(call.attrs.pad_value))


def _write_pad(op: Operator, args: Operands) -> Expr:
    flat = [width for pair in op.get("widths") for width in pair]
    return relax.op.nn.pad(args[0], flat, pad_value=op.get("value"))


def _read_matmul(call: relax.Call) -> Operator:
    out = str(call.attrs.out_dtype or "")
    _require(out in ("", "void", str(call.args[0].ty.dtype)))
    return operator("matmul")


def _read_clip(call: relax.Call) -> Operator:
    return operator("clip", min=_number(call.args[1]), max=_number(call.args[2]))


def _plain(name: str) -> Callable[[relax.Call], Operator]:
    return lambda call: operator(name)


def _on_all(function: Callable[..., Expr]) -> Callable[[Operator, Operands], Expr]:
    return lambda op, args: function(*args)


def _with_axis(function: Callable[..., Expr]) -> Callable[[Operator, Operands], Expr]:
    return lambda op, args: function(args[0], axis=op.get("axis"))


Reader = Callable[[relax.Call], Operator]
Writer = Callable[[Operator, Operands], Expr]

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
    "conv2d": ("relax.nn.conv2d", _read_conv2d, _write_conv2d),
    "max_pool2d": (
        "relax.nn.max_pool2d",
        _read_pool("max_pool2d"),
        _write_pool(relax.op.nn.max_pool2d),
    ),
    "avg_pool2d": (
        "relax.nn.avg_pool2d",
        _read_pool("avg_pool2d"),
        _write_pool(relax.op.nn.avg_pool2d),
    ),
    "batch_norm": ("relax.nn.batch_norm", _read_batch_norm, _write_batch_norm),
    "layer_norm": ("relax.nn.layer_norm", _read_layer_norm, _write_layer_norm),
    "softmax": ("relax.nn.softmax", _read_axis("softmax"), _with_axis(relax.op.nn.softmax)),
    "dropout": (
        "relax.nn.dropout",
        lambda call: operator("dropout", rate=float(call.attrs.rate)),
        lambda op, args: relax.op.nn.dropout(args[0], op.get("rate")),
    ),
    "matmul": ("relax.matmul", _read_matmul, _on_all(relax.op.matmul)),
    "einsum": (
        "relax.einsum",
        lambda call: operator("einsum", subscripts=str(call.attrs.subscripts)),
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
        lambda call: operator("reshape", shape=_shape(call)),
        lambda op, args: relax.op.reshape(args[0], op.get("shape")),
    ),
    "permute_dims": (
        "relax.permute_dims",
        _read_permute,
        lambda op, args: relax.op.permute_dims(args[0], list(op.get("axes"))),
    ),
    "expand_dims": (
        "relax.expand_dims",
        lambda call: operator("expand_dims", axis=_axes(call.attrs.axis, _rank(call))),
        lambda op, args: relax.op.expand_dims(args[0], list(op.get("axis"))),
    ),
    "squeeze": (
        "relax.squeeze",
        _read_squeeze,
        lambda op, args: relax.op.squeeze(args[0], list(op.get("axis"))),
    ),
    "broadcast_to": (
        "relax.broadcast_to",
        lambda call: operator("broadcast_to", shape=_shape(call)),
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
    """Read a call as an operator that rules may name.

    Parameters
    ----------
    call : relax.Call
        The call. Its type and those of its operands are static.

    Returns
    -------
    operator : Operator or None
        None for a call that rules do not know: of another operator, or in an unusual form.
    """
    reader = _READERS.get(operator_name(call))
    if reader is None:
        return None
    try:
        return reader(call)
    except _NotRead:
        return None


def write_call(op: Operator, operands: Sequence[Expr]) -> Expr:
    """Write an operator as a call.

    Parameters
    ----------
    op : Operator
        An operator that :func:`read_call` may return, or "get".
    operands : Sequence[Expr]
        Its operands.
    """
    if op.name == "get":
        return relax.TupleGetItem(operands[0], op.get("index"))
    return _WRITERS[op.name](op, list(operands))


def known_operators() -> list[str]:
    """The names of the operators that can be read and written."""
    return sorted(_TABLE)

# SPDX-License-Identifier: Apache-2.0
"""Reads and writes Relax calls of convolutions, pools and norms."""

from collections.abc import Callable

from tvm import relax
from tvm_droplet_ms.model.bindings import Expr

from ..equality.language import Operator, operator
from .attributes import Operands, Reader, Writer, axes_in, ints, positive, rank_of, require


def _read_conv2d(call: relax.Call) -> Operator:
    attrs = call.attrs
    layouts = [attrs.data_layout, attrs.kernel_layout, attrs.out_layout]
    require(all(len(layout) == 4 and layout.isupper() for layout in layouts))
    require(attrs.data_layout == attrs.out_layout)
    require(not attrs.out_dtype or str(attrs.out_dtype) in ("void", str(call.args[0].ty.dtype)))
    return operator(
        "conv2d",
        strides=ints(attrs.strides),
        padding=ints(attrs.padding),
        dilation=ints(attrs.dilation),
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
        require(len(attrs.layout) == 4 and attrs.layout.isupper())
        require(attrs.layout == attrs.out_layout)
        return operator(
            name,
            pool_size=ints(attrs.pool_size),
            strides=ints(attrs.strides),
            padding=ints(attrs.padding),
            dilation=ints(attrs.dilation),
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
        axis=positive(attrs.axis, rank_of(call.args[0])),
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
    # TVM's kernel ignores these attributes: it always scales and shifts.
    require(bool(attrs.center) and bool(attrs.scale))
    axes = axes_in(attrs.axes, rank_of(call.args[0]))
    return operator("layer_norm", axes=axes, epsilon=float(attrs.epsilon))


def _write_layer_norm(op: Operator, args: Operands) -> Expr:
    return relax.op.nn.layer_norm(*args, axes=list(op.get("axes")), epsilon=op.get("epsilon"))


LAYERS: dict[str, tuple[str, Reader, Writer]] = {
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
}
"""Maps each operator to its Relax name, its reader and its writer."""

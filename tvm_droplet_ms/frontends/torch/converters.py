# SPDX-License-Identifier: Apache-2.0
"""PyTorch operators that TVM's importer lacks or imports incorrectly."""

from collections.abc import Callable
from typing import Any

from tvm import relax

from ...model.scattering import scatter
from ...model.window_maxima import Windows, pool_with_positions
from ...session.errors import ModelError
from . import recurrent


def _args(importer: Any, node: Any) -> tuple[Any, ...]:
    return tuple(importer.retrieve_args(node))


def _extreme(reduce: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return a converter of ``amax`` or ``amin``."""

    def convert(node: Any, importer: Any) -> Any:
        x, *rest = _args(importer, node)
        axes = list(rest[0]) if rest and rest[0] else None
        keep = bool(rest[1]) if len(rest) > 1 else False
        return importer.block_builder.emit(reduce(x, axes, keep))

    return convert


def _extreme_with_place(
    reduce: Callable[..., Any], place: Callable[..., Any]
) -> Callable[[Any, Any], Any]:
    """Return a converter of ``max.dim`` or ``min.dim``, to the values and their indices."""

    def convert(node: Any, importer: Any) -> Any:
        x, axis, *rest = _args(importer, node)
        keep = bool(rest[0]) if rest else False
        emit = importer.block_builder.emit
        at = _inside(importer, emit(place(x, axis, keep)))
        return emit(relax.Tuple([emit(reduce(x, axis, keep)), at]))

    return convert


def _place(place: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return a converter of ``argmax`` or ``argmin``."""

    def convert(node: Any, importer: Any) -> Any:
        return _inside(importer, importer._argmax_argmin(place)(node))

    return convert


def _inside(importer: Any, place: Any) -> Any:
    """Clamp an extreme's index to 0: TVM returns -1 if all elements equal its initial value."""
    zero = relax.const(0, str(place.ty.dtype))
    return importer.block_builder.emit(relax.op.maximum(place, zero))


def _max_pool(axes: int) -> Callable[[Any, Any], Any]:
    """Return a converter of ``max_pool{axes}d_with_indices``: TVM's importer gives zero indices."""

    def convert(node: Any, importer: Any) -> Any:
        if all(user.args[1] == 0 for user in node.users):
            return getattr(importer, f"_max_pool{axes}d_with_indices")(node)
        x, kernel, *rest = _args(importer, node)
        defaults = [kernel, [0] * axes, [1] * axes]
        stride, padding, dilation = [*rest[:3], *defaults[len(rest[:3]) :]]
        given = (kernel, stride or kernel, dilation, padding)
        whole = [list(one) * (axes // len(one)) for one in given]
        sizes = list(node.meta["val"][0].shape[-axes:])
        windows = Windows(whole[0], whole[1], whole[2], whole[3], sizes)
        emit = importer.block_builder.emit
        is_batch = len(x.ty.shape) == axes + 2
        pair = importer.block_builder.emit_te(
            lambda data: pool_with_positions(data, windows, in_plane=True),
            x if is_batch else emit(relax.op.expand_dims(x, 0)),
            primfunc_name_hint="max_pool_indices",
        )
        if is_batch:
            return pair
        parts = [emit(relax.TupleGetItem(pair, at)) for at in range(2)]
        return emit(relax.Tuple([emit(relax.op.squeeze(part, [0])) for part in parts]))

    return convert


def _index(node: Any, importer: Any) -> Any:
    """Convert ``x[:, :, i, j]``: TVM's importer would combine each i with each j.

    The indexed axes are merged into one, and so are the indices. Axes that are not adjacent are
    first moved to the front.
    """
    x, indices = _args(importer, node)
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    emit = importer.block_builder.emit
    if len(axes) == 1:
        # Negative numbers count from the end.
        return emit(relax.op.take(x, indices[axes[0]], axis=axes[0], mode="wrap"))
    shape = [int(extent) for extent in x.ty.shape]
    if axes != list(range(axes[0], axes[-1] + 1)):
        order = [*axes, *(axis for axis in range(len(shape)) if axis not in axes)]
        x = emit(relax.op.permute_dims(x, order))
        indices = [indices[axis] for axis in axes]
        shape = [shape[axis] for axis in order]
        axes = list(range(len(axes)))
    merged = None
    for axis in axes:
        extent = relax.const(shape[axis], str(indices[axis].ty.dtype))
        index = emit(relax.op.floor_mod(indices[axis], extent))
        merged = (
            index
            if merged is None
            else emit(relax.op.add(emit(relax.op.multiply(merged, extent)), index))
        )
    whole = [*shape[: axes[0]], -1, *shape[axes[-1] + 1 :]]
    return emit(relax.op.take(emit(relax.op.reshape(x, whole)), merged, axis=axes[0]))


def _grid_sample(node: Any, importer: Any) -> Any:
    """Convert ``grid_sampler_2d``: TVM's kernel expects the coordinate axis before the others."""
    x, grid, method, padding, corners = _args(importer, node)
    emit = importer.block_builder.emit
    return emit(
        relax.op.image.grid_sample(
            x,
            emit(relax.op.permute_dims(grid, [0, 3, 1, 2])),
            method=("bilinear", "nearest", "bicubic")[method],
            layout="NCHW",
            padding_mode=("zeros", "border", "reflection")[padding],
            align_corners=corners,
        )
    )


def _convolution(node: Any, importer: Any) -> Any:
    """Convert ``convolution``: TVM's importer lacks transposed 3D convolutions."""
    x, weight, bias, stride, padding, dilation, transposed, more, groups = _args(importer, node)
    if not transposed or len(x.ty.shape) != 5:
        return importer._convolution(node)
    emit = importer.block_builder.emit
    result = emit(
        relax.op.nn.conv3d_transpose(
            x, weight, stride, padding, more, dilation, groups, out_dtype=str(x.ty.dtype)
        )
    )
    if bias is None:
        return result
    return emit(relax.op.add(result, emit(relax.op.reshape(bias, (1, -1, 1, 1, 1)))))


_ITEM = "_local_scalar_dense.default"
"""The operator that reads the number in a 0-d tensor; TVM's importer makes it an extent."""


def _select(node: Any, importer: Any) -> Any:
    """Convert ``x[:, i]``: TVM's kernel reads before the buffer for a negative i."""
    x, axis, index = _args(importer, node)
    emit = importer.block_builder.emit
    extent = getattr(x.ty.shape[axis % len(x.ty.shape)], "value", None)
    is_number = isinstance(index, int)
    if getattr(getattr(node.args[2], "target", None), "__name__", "") == _ITEM:
        index = importer.env[node.args[2].args[0]]
    if extent is None and (not is_number or index < 0):
        raise ModelError(
            f"the model takes number {index if is_number else 'i, an input,'} of an open extent: "
            "pass the extents to tune for"
        )
    if is_number:
        place = relax.const(index + extent if index < 0 else index, "int64")
    else:
        given = emit(relax.op.astype(emit(relax.op.reshape(index, [])), "int64"))
        from_end = emit(relax.op.add(given, relax.const(extent, "int64")))
        is_behind = emit(relax.op.less(given, relax.const(0, "int64")))
        place = emit(relax.op.where(is_behind, from_end, given))
    return emit(relax.op.take(x, place, axis=axis, mode="fast"))


def _scatter(reduction: str) -> Callable[[Any, Any], Any]:
    """Return a converter of ``scatter`` with a tensor or a number, or of ``scatter_add``."""

    def convert(node: Any, importer: Any) -> Any:
        x, axis, index, values = _args(importer, node)
        emit = importer.block_builder.emit
        if not isinstance(values, relax.Expr):
            number = relax.const(values, str(x.ty.dtype))
            values = emit(relax.op.broadcast_to(number, index.ty.shape))

        def write(data: Any, places: Any, updates: Any, along: int) -> Any:
            return relax.op.scatter_elements(data, places, updates, along, reduction)

        return emit(scatter(emit, [x, index, values], axis, write))

    return convert


CONVERTERS: dict[str, Callable[[Any, Any], Any]] = {
    "amax.default": _extreme(relax.op.max),
    "amin.default": _extreme(relax.op.min),
    "argmax.default": _place(relax.op.argmax),
    "argmin.default": _place(relax.op.argmin),
    "convolution.default": _convolution,
    "grid_sampler_2d.default": _grid_sample,
    "max_pool2d_with_indices.default": _max_pool(2),
    "max_pool3d_with_indices.default": _max_pool(3),
    "max.dim": _extreme_with_place(relax.op.max, relax.op.argmax),
    "min.dim": _extreme_with_place(relax.op.min, relax.op.argmin),
    "index.Tensor": _index,
    "scatter.src": _scatter("update"),
    "scatter.value": _scatter("update"),
    "scatter_add.default": _scatter("add"),
    "select.int": _select,
    **{f"{kind}.input": recurrent.convert(kind) for kind in recurrent.KINDS},
}
"""Converters by overload name: called with the node and the importer; returns a Relax variable."""

# SPDX-License-Identifier: Apache-2.0
"""TVM's importer of exported programs, checked against PyTorch's shapes and types at every node.

It has converters of operators that TVM's importer lacks or imports incorrectly.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from ...model.indices import scatter
from ...model.window_maxima import Windows, pool_with_positions
from ...session.errors import ModelError, first_line
from . import recurrent
from .constant_folding import constant
from .loading import line_of

Converter = Callable[[Any], Any]


class CheckedImporter(ExportedProgramImporter):  # type: ignore[misc]
    """TVM's importer with additional operators and checks.

    The result of a converter is compared with the metadata that PyTorch recorded for the node at
    export. A different type is converted; a different shape is an error. ``constants``: the result
    of ``fold_constants``.
    """

    def __init__(self, torch: Any, constants: list[Any]) -> None:
        self._torch = torch
        self._constants = constants
        super().__init__()

    def create_convert_map(self) -> dict[str, Converter]:
        """Return TVM's converters and this package's, by overload name."""
        converters = dict(super().create_convert_map())
        converters |= {name: self._ours(converter) for name, converter in CONVERTERS.items()}
        converters[constant.__name__] = self._held
        return {name: self._checked(converter) for name, converter in converters.items()}

    def refuse_unknown(self, program: Any) -> None:
        """Raise ``ModelError`` if a program has operators without a converter.

        The message names the operators and the model's source line of the first one.
        """
        nodes = [node for node in program.graph.nodes if node.op == "call_function"]
        unknown = [node for node in nodes if node.target.__name__ not in self.convert_map]
        if unknown:
            names = list(dict.fromkeys(node.target.__name__ for node in unknown))
            operators, are, it = "operator", "is", "it"
            if len(names) > 1:
                operators, are, it = "operators", "are", "them"
            raise ModelError(
                f"the model uses the {operators} {', '.join(names)} of PyTorch"
                f"{line_of(unknown[0])}, which {are} not supported: replace {it}, or compile "
                f"the part of the model without {it}"
            )

    def _ours(self, converter: Callable[[Any, Any], Any]) -> Converter:
        return lambda node: converter(node, self)

    def _held(self, node: Any) -> Any:
        return self._convert_torch_tensor_to_relax(self._constants[node.args[0]])

    def _checked(self, converter: Converter) -> Converter:
        def convert(node: Any) -> Any:
            try:
                result = converter(node)
            except ModelError:
                raise
            # TVM raises AssertionError, NotImplementedError and others for unsupported cases.
            except Exception as error:
                raise ModelError(
                    f"TVM cannot import {_called(node)}{line_of(node)}: {first_line(error)}"
                ) from error
            return self._as_noted(node, result)

        return convert

    def _as_noted(self, node: Any, result: Any) -> Any:
        noted = node.meta.get("val")
        kind = getattr(result, "ty", None)
        if not isinstance(noted, self._torch.Tensor) or not isinstance(kind, relax.TensorType):
            return result
        if isinstance(kind.shape, relax.ShapeExpr):
            extents = [getattr(extent, "value", None) for extent in kind.shape]
            expected = list(noted.shape)
            if len(extents) != len(expected) or any(
                isinstance(right, int) and found is not None and found != right
                for found, right in zip(extents, expected, strict=True)
            ):
                raise ModelError(
                    f"TVM imports {_called(node)}{line_of(node)} with the shape "
                    f"{tuple(extents)}, where PyTorch has {tuple(expected)}: please report it"
                )
        dtype = str(noted.dtype).removeprefix("torch.")
        if str(kind.dtype) != dtype and node.op == "call_function":
            return self.block_builder.emit(relax.op.astype(result, dtype))
        return result


def _called(node: Any) -> str:
    return f"{node.target.__name__} (node {node.name})"


def _args(importer: Any, node: Any) -> tuple[Any, ...]:
    return tuple(importer.retrieve_args(node))


def _extreme(reduce: Callable[..., Any], node: Any, importer: Any) -> Any:
    """Convert ``amax`` or ``amin``."""
    x, axes, keep, *_ = (*_args(importer, node), None, None)
    return importer.block_builder.emit(reduce(x, list(axes) if axes else None, bool(keep)))


def _extreme_with_place(
    reduce: Callable[..., Any], place: Callable[..., Any], node: Any, importer: Any
) -> Any:
    """Convert ``max.dim`` or ``min.dim``, to the values and their indices."""
    x, axis, keep, *_ = (*_args(importer, node), False)
    emit = importer.block_builder.emit
    at = _inside(importer, emit(place(x, axis, bool(keep))))
    return emit(relax.Tuple([emit(reduce(x, axis, bool(keep))), at]))


def _place(place: Callable[..., Any], node: Any, importer: Any) -> Any:
    """Convert ``argmax`` or ``argmin``."""
    return _inside(importer, importer._argmax_argmin(place)(node))


def _inside(importer: Any, place: Any) -> Any:
    """Clamp an extreme's index to 0: TVM returns -1 if all elements equal its initial value."""
    zero = relax.const(0, str(place.ty.dtype))
    return importer.block_builder.emit(relax.op.maximum(place, zero))


def _max_pool(axes: int, node: Any, importer: Any) -> Any:
    """Convert ``max_pool{axes}d_with_indices``: TVM's importer gives zero indices."""
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


def _scatter(reduction: str, node: Any, importer: Any) -> Any:
    """Convert ``scatter`` with a tensor or a number, or ``scatter_add``."""
    x, axis, index, values = _args(importer, node)
    emit = importer.block_builder.emit
    if not isinstance(values, relax.Expr):
        number = relax.const(values, str(x.ty.dtype))
        values = emit(relax.op.broadcast_to(number, index.ty.shape))
    write = partial(relax.op.scatter_elements, reduction=reduction)
    return emit(scatter(emit, [x, index, values], axis, write))


CONVERTERS: dict[str, Callable[[Any, Any], Any]] = {
    "amax.default": partial(_extreme, relax.op.max),
    "amin.default": partial(_extreme, relax.op.min),
    "argmax.default": partial(_place, relax.op.argmax),
    "argmin.default": partial(_place, relax.op.argmin),
    "convolution.default": _convolution,
    "grid_sampler_2d.default": _grid_sample,
    "max_pool2d_with_indices.default": partial(_max_pool, 2),
    "max_pool3d_with_indices.default": partial(_max_pool, 3),
    "max.dim": partial(_extreme_with_place, relax.op.max, relax.op.argmax),
    "min.dim": partial(_extreme_with_place, relax.op.min, relax.op.argmin),
    "index.Tensor": _index,
    "scatter.src": partial(_scatter, "update"),
    "scatter.value": partial(_scatter, "update"),
    "scatter_add.default": partial(_scatter, "add"),
    "select.int": _select,
    **{f"{kind}.input": partial(recurrent.convert, kind) for kind in recurrent.KINDS},
}
"""Converters by overload name: called with the node and the importer; returns a Relax variable."""

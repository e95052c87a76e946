# SPDX-License-Identifier: Apache-2.0
"""Kernels of bfloat16, and of bytes in matrix tiles: products, convolutions, pools and casts.

A number of rows that no tile divides, such as the 197 of a ViT, is extended by copies of the last
row. Matrix tiles read their rows from memory: for them the data are copied and extended by rows of
zeros, and the map of a convolution by rows and lines (``padded_map``).

TVM computes bfloat16 in float32 (``BF16ComputeLegalize``), so its padding and its max pools convert
each number to float32 and back. Here the padding copies raw bits. For pools, the lower fifteen bits
of negative numbers are flipped: as signed words, the bits then have the order of the numbers.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import relax, te, tirx, topi
from tvm.target import Target

from ...design_space.dot_products.dot_intrinsics import BYTES, HALF
from ...design_space.dot_products.rounded_vectors import rounded
from ...design_space.matrix_tiles.find_matrix import product_geometry
from ...design_space.matrix_tiles.tile_shapes import joined_lines, padded_map
from ..bindings import Expr, static_shape
from ..layers import layouts_of
from .attention.attention_compute import row_unit
from .attention.attention_packing import at_most
from .kernel_pass import legalize_as_tvm

_TILES = range(4, 15)
"""Row counts of good tiles."""

_LEAST_ROWS = 16

_FEWEST_TILED = 8
"""Minimum rows for matrix tiles."""


def legalize_matmul(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalize ``relax.matmul``.

    TVM legalizes everything except products with a matrix, of bfloat16 or bytes, whose rows need
    padding.
    """
    rows = _rows(call)
    tiled = None if rows is None or rows < _FEWEST_TILED else _tiled(call, rows)
    if rows is not None and tiled is not None:
        if tiled[0] != rows:
            arguments = (*call.args, tiled[0])
            return builder.call_te(tiled_matmul, *arguments, primfunc_name_hint="matmul")
        rows = None
    is_of_bytes = str(call.ty.dtype) != "float32"
    if rows is None or rows < _LEAST_ROWS or _is_middle_one(list(call.args[0].ty.shape)):
        rows = 1
    is_good = rows == 1 or any(rows % tile == 0 for tile in _TILES)
    if is_good or is_of_bytes:
        return legalize_as_tvm(builder, call)
    return builder.call_te(half_matmul, *call.args, primfunc_name_hint="matmul")


def _tiled(call: Any, rows: int, lines: int = 1) -> tuple[int, int] | None:
    """Return the rows and lines of a map that tiles need; None if matrix tiles do not apply."""
    geometry = _geometry(call)
    return None if geometry is None else padded_map(rows, lines, *geometry)


def _geometry(call: Any) -> tuple[int, int, int, int] | None:
    """Return ``product_geometry`` of a product or convolution for the current target."""
    target = Target.current(allow_none=True)
    if target is None:
        return None
    *kernel, depth, outputs = (int(extent) for extent in call.args[1].ty.shape)
    dtype = str(call.args[0].ty.dtype)
    return product_geometry(target, dtype, depth, outputs, prod(kernel))


def _rows(call: Any) -> int | None:
    """Return the rows of a product of bfloat16 or bytes with a matrix; None for other products."""
    shapes = [static_shape(operand) for operand in call.args]
    types = [str(each.ty.dtype) for each in call.args]
    sums = {"float32": (HALF,), "int32": BYTES}.get(str(call.ty.dtype), ())
    if not {*types} <= {*sums} or None in shapes:
        return None
    data, weights = shapes
    is_plain = data is not None and len(data) > 1 and weights is not None and len(weights) == 2
    if not is_plain or data is None:
        return None
    return data[-3] if _is_middle_one(data) else data[-2]


def _is_middle_one(shape: Sequence[int]) -> bool:
    """Return whether the row axis is one axis further out, as in sequences of batch size 1."""
    return len(shape) > 2 and shape[-2] == 1


def tiled_matmul(data: te.Tensor, weights: te.Tensor, computed: int) -> te.Tensor:
    """Multiply data of shape (..., rows, depth) with weights of (depth, columns).

    ``computed``: the rows to compute; excess rows are dropped. Returns float32 for bfloat16, and
    int32 for bytes.
    """
    shape = [int(extent) for extent in data.shape]
    axis = len(shape) - (3 if _is_middle_one(shape) else 2)
    columns, dtype = int(weights.shape[1]), str(data.dtype)
    sums = "float32" if dtype == HALF else "int32"
    k = te.reduce_axis((0, shape[-1]), "k")

    more = [*shape[:axis], computed, *shape[axis + 1 :]]
    longer = te.compute(
        more, lambda *at: _or_zero(dtype, data(*at), at[axis] < shape[axis]), name="pad_temp"
    )
    whole = te.compute(
        (*more[:-1], columns),
        lambda *at: te.sum(
            longer(*at[:-1], k).astype(sums) * weights(k, at[-1]).astype(sums), axis=[k]
        ),
        name="matmul",
    )
    return te.compute((*shape[:-1], columns), lambda *at: whole(*at), name="rows")


def half_matmul(data: te.Tensor, weights: te.Tensor) -> te.Tensor:
    """Multiply data of shape (..., rows, depth) with weights of (depth, columns), in float32."""
    *batch, rows, depth = (int(extent) for extent in data.shape)
    columns = int(weights.shape[1])
    unit = row_unit(rows)
    padded = -(-rows // unit) * unit
    k = te.reduce_axis((0, depth), "k")

    def product(*at: Any) -> Any:
        factors = data(*at[:-2], at_most(at[-2], rows, padded), k), weights(k, at[-1])
        one, other = (factor.astype("float32") for factor in factors)
        return te.sum(one * other, axis=[k])

    whole = te.compute((*batch, padded, columns), product, name="matmul")
    return te.compute((*batch, rows, columns), lambda *at: whole(*at), name="rows")


def _or_zero(dtype: str, load: Any, condition: Any) -> Any:
    """Copy a number as raw bits if a condition holds; otherwise return zero."""
    bits = "uint16" if dtype == HALF else dtype
    stored = tirx.if_then_else(condition, tirx.reinterpret(bits, load), tirx.const(0, bits))
    return tirx.reinterpret(dtype, stored)


def is_half_convolution(call: Any) -> bool:
    """Return whether a convolution is bfloat16 to float32, with one group, in NHWC and HWIO."""
    types = {str(operand.ty.dtype) for operand in call.args}
    return types == {HALF} and str(call.ty.dtype) == "float32" and _is_plain(call)


def has_tiled_map(call: Any) -> bool:
    """Return whether matrix tiles need an extended map for a convolution of bytes."""
    types = [str(operand.ty.dtype) for operand in call.args]
    is_of_bytes = {*types} <= {*BYTES} and str(call.ty.dtype) == "int32"
    if not is_of_bytes or not _is_plain(call):
        return False
    own = tuple(int(extent) for extent in list(call.ty.shape)[1:3])
    return _joined_lines(call) > 0 or _map(call) != own


def _is_plain(call: Any) -> bool:
    return (
        layouts_of(call.attrs) == ("NHWC", "HWIO", "NHWC")
        and int(call.attrs.groups) == 1
        and all(static_shape(each) is not None for each in (*call.args, call))
    )


def _map(call: Any) -> tuple[int, int]:
    """Return the lines and rows of the map to compute."""
    lines, rows = (int(extent) for extent in list(call.ty.shape)[1:3])
    found = _tiled(call, rows, lines)
    return (lines, rows) if found is None else found[::-1]


def _joined_lines(call: Any) -> int:
    """Return the lines to compute of a map whose rows are one axis; 0 for other maps."""
    geometry, attrs = _geometry(call), call.attrs
    if geometry is None:
        return 0
    lines, rows = (int(extent) for extent in list(call.ty.shape)[1:3])
    reach = (int(call.args[1].ty.shape[1]) - 1) * int(attrs.dilation[1])
    pitch = row_pitch(rows, reach, int(attrs.strides[1]))
    return joined_lines(rows, lines, pitch, *geometry)


def call_half_convolution(builder: relax.BlockBuilder, call: Any) -> Expr:
    """Call the kernel of a convolution, with sums in float32 or int32.

    ``call``: a call of ``relax.nn.conv2d`` that ``is_half_convolution`` or ``has_tiled_map``.
    Returns a ``call_tir``.
    """
    attrs, joined = call.attrs, _joined_lines(call)
    return builder.call_te(
        flat_convolution if joined else half_convolution,
        *call.args,
        *([int(n) for n in each] for each in (attrs.strides, attrs.padding, attrs.dilation)),
        joined or _map(call),
        primfunc_name_hint="conv2d",
    )


def half_convolution(
    data: te.Tensor,
    weights: te.Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    computed: tuple[int, int] | None = None,
) -> te.Tensor:
    """Convolve images of shape (batch, height, width, inputs) with HWIO weights.

    ``padding``: the zeros at the top, left, bottom and right. ``computed``: the lines and rows of
    the map to compute; excess ones are dropped. Returns float32 for bfloat16, and int32 for bytes.
    """
    kernel = [int(extent) for extent in weights.shape[:2]]
    reach = [(extent - 1) * step + 1 for extent, step in zip(kernel, dilation, strict=True)]
    images = [int(extent) for extent in data.shape[1:3]]
    top, left, bottom, right = padding
    own = [
        (extent + before + after - wide) // step + 1
        for extent, before, after, wide, step in zip(
            images, (top, left), (bottom, right), reach, strides, strict=True
        )
    ]
    asked = computed or tuple(own)
    bottom, right = (
        max(after, (extent - 1) * step + wide - before - image)
        for after, extent, step, wide, before, image in zip(
            (bottom, right), asked, strides, reach, (top, left), images, strict=True
        )
    )
    sums = "float32" if str(data.dtype) == HALF else "int32"
    padded = _padded(data, (top, left, bottom, right))
    product = topi.nn.conv2d_nhwc(padded, weights, strides, 0, dilation, out_dtype=sums)
    if list(asked) == own:
        return product
    batch, *_, outputs = product.shape
    return te.compute((batch, *own, outputs), lambda *at: product(*at), name="map")


def flat_convolution(
    data: te.Tensor,
    weights: te.Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    computed: int,
) -> te.Tensor:
    """Convolve small images, whose pixels are rows of matrix tiles at one distance in memory.

    A copy of the images has the columns of padding between two lines only once, so the next line
    of the map begins where the line before it ends, with a few rows that are dropped. For strides,
    there is a copy of each phase: of the even pixels and of the odd ones. Arguments as for
    ``half_convolution``, but ``computed`` is the number of lines.
    """
    batch, height, width, channels = (int(extent) for extent in data.shape)
    (top, left, bottom, right), (down, across) = padding, strides
    reach = [(int(n) - 1) * step for n, step in zip(weights.shape[:2], dilation, strict=True)]
    lines = (top + height + bottom - reach[0] - 1) // down + 1
    rows = (left + width + right - reach[1] - 1) // across + 1
    high, pitch = reach[0] // down, row_pitch(rows, reach[1], across)
    phases = [min(n, extent + 1) for n, extent in zip(strides, reach, strict=True)]
    places = (computed + high) * pitch + pitch - rows

    def copied(n: Any, phase: Any, place: Any, c: Any) -> Any:
        y = place // pitch * down + phase // phases[1] - top
        x = place % pitch * across + phase % phases[1] - left
        is_inside = tirx.all(y >= 0, y < height, x >= 0, x < width)
        return _or_zero(str(data.dtype), data[n, y, x, c], is_inside)

    copy = te.compute((batch, prod(phases), places, channels), copied, name="pad_temp")
    axes = [
        te.reduce_axis((0, extent), name)
        for extent, name in zip(weights.shape[:3], ("ry", "rx", "rc"), strict=True)
    ]
    sums = "float32" if str(data.dtype) == HALF else "int32"

    def product(n: Any, y: Any, x: Any, output: Any) -> Any:
        ry, rx, rc = axes
        from_top, from_left = ry * dilation[0], rx * dilation[1]
        phase = from_top % down * phases[1] + from_left % across
        place = (y + from_top // down) * pitch + x + from_left // across
        factors = copy[n, phase, place, rc], weights[ry, rx, rc, output]
        one, other = (factor.astype(sums) for factor in factors)
        return te.sum(one * other, axis=axes)

    outputs = weights.shape[3]
    whole = te.compute((batch, computed, pitch, outputs), product, name="conv2d_nhwc")
    return te.compute((batch, lines, rows, outputs), lambda *at: whole(*at), name="map")


def row_pitch(rows: int, reach: int, stride: int) -> int:
    """Return the rows from one line to the next in ``flat_convolution``.

    ``reach``: the pixels from the first tap to the last.
    """
    return rows + reach // stride


def _padded(data: te.Tensor, padding: Sequence[int]) -> te.Tensor:
    if not any(padding):
        return data
    top, left, bottom, right = padding
    batch, height, width, channels = data.shape

    def copied(n: Any, y: Any, x: Any, c: Any) -> Any:
        is_inside = tirx.all(y >= top, y < top + height, x >= left, x < left + width)
        return _or_zero(str(data.dtype), data[n, y - top, x - left, c], is_inside)

    shape = (batch, height + top + bottom, width + left + right, channels)
    return te.compute(shape, copied, name="pad_temp")


_WORD, _MAGNITUDE, _SIGN_BIT = "int16", 0x7FFF, 15

_KEY_OF_MINUS_INFINITY = (0xFF80 ^ _MAGNITUDE) - (1 << 16)


def legalize_max_pool(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalize ``relax.nn.max_pool2d``; TVM legalizes all pools except bfloat16 ones."""
    attrs = call.attrs
    if str(call.ty.dtype) != HALF or attrs.out_layout != attrs.layout:
        return legalize_as_tvm(builder, call)
    return builder.call_te(
        half_max_pool,
        call.args[0],
        kernel=attrs.pool_size,
        stride=attrs.strides,
        dilation=attrs.dilation,
        padding=attrs.padding,
        ceil_mode=attrs.ceil_mode,
        layout=attrs.layout,
        primfunc_name_hint="max_pool2d",
    )


def half_max_pool(data: te.Tensor, **geometry: Any) -> te.Tensor:
    """Return the maximum of each window; ``geometry``: the arguments of ``topi.nn.pool2d``."""
    keys = te.compute(
        data.shape, lambda *at: _flipped(tirx.reinterpret(_WORD, data(*at))), name="keys"
    )
    largest = topi.nn.pool2d(keys, pool_type="max", **geometry)
    # Padding is the smallest word, which is the key of a NaN.
    lowest = tirx.const(_KEY_OF_MINUS_INFINITY, _WORD)
    return te.compute(
        largest.shape,
        lambda *at: tirx.reinterpret(HALF, _flipped(te.max(largest(*at), lowest))),
        name="largest",
    )


def _flipped(bits: Any) -> Any:
    """Convert bits to ordered keys, or ordered keys back to bits."""
    signs = tirx.shift_right(bits, tirx.const(_SIGN_BIT, _WORD))
    return bits ^ (signs & tirx.const(_MAGNITUDE, _WORD))


def legalize_cast(builder: relax.BlockBuilder, call: Any) -> Any:
    """Legalize ``relax.astype``; TVM legalizes all casts except float32 to bfloat16."""
    data = call.args[0]
    if (str(data.ty.dtype), str(call.ty.dtype)) != ("float32", HALF):
        return legalize_as_tvm(builder, call)
    return builder.call_te(round_tensor, data, primfunc_name_hint="cast")


def round_tensor(data: te.Tensor) -> te.Tensor:
    """Round a float32 tensor to bfloat16."""
    return te.compute(data.shape, lambda *at: rounded(data(*at)), name="compute")

# SPDX-License-Identifier: Apache-2.0
"""A NumPy interpreter of Relax functions, against which the graph passes are tested.

It computes in float64, so that it shows what a pass changed and not what rounding did.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from tvm import relax
from tvm.ir import GenericConst
from tvm.tirx import IntImm


def axes_to(layout, wanted):
    return [layout.index(letter) for letter in wanted]


def windows(data, kernel, strides, dilation):
    """Windows of the axes after N and C: N, C, the places of the windows, and their elements."""
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation)]
    view = sliding_window_view(data, reach, axis=tuple(range(2, data.ndim)))
    steps = (slice(None, None, step) for step in (*strides, *dilation))
    return view[(slice(None), slice(None), *steps)]


def padded(data, padding, value):
    """Data with some elements before each axis after N and C, and then some after each."""
    rank = data.ndim - 2
    widths = zip(padding[:rank], padding[rank:])
    return np.pad(data, [(0, 0), (0, 0), *widths], constant_values=value)


def ints(values):
    return [int(value) for value in values]


def spatial(layout):
    return "".join(letter for letter in layout if letter in "DHW")


def convolution(attrs, data, weight):
    axes = spatial(attrs.data_layout)
    rank = len(axes)
    data = data.transpose(axes_to(attrs.data_layout, f"NC{axes}"))
    weight = weight.transpose(axes_to(attrs.kernel_layout, f"OI{axes}"))
    data = padded(data, ints(attrs.padding), 0)
    view = windows(data, weight.shape[2:], ints(attrs.strides), ints(attrs.dilation))
    groups = int(attrs.groups)
    outputs = [
        np.tensordot(
            view_of_group,
            weight_of_group,
            ([1, *range(2 + rank, 2 + 2 * rank)], list(range(1, 2 + rank))),
        )
        for view_of_group, weight_of_group in zip(
            np.split(view, groups, axis=1), np.split(weight, groups)
        )
    ]
    result = np.concatenate(outputs, axis=-1)
    return result.transpose(axes_to(f"N{axes}C", attrs.out_layout))


def pool(attrs, data, reduce_windows, padding_value):
    axes = spatial(attrs.layout)
    rank = len(axes)
    data = data.transpose(axes_to(attrs.layout, f"NC{axes}"))
    kernel, strides, dilation = (
        ints(extents) for extents in (attrs.pool_size, attrs.strides, attrs.dilation)
    )
    padding = ints(attrs.padding)
    if attrs.ceil_mode:
        for axis, step in enumerate(strides):
            padding[rank + axis] += step - 1
            # The last window starts inside the image or the padding in front of it.
            extent = data.shape[2 + axis] + padding[axis]
            last = (extent + padding[rank + axis] - kernel[axis]) // step * step
            assert last < extent
    data = padded(data, padding, padding_value)
    window_axes = tuple(range(2 + rank, 2 + 2 * rank))
    result = reduce_windows(windows(data, kernel, strides, dilation), axis=window_axes)
    return result.transpose(axes_to(f"NC{axes}", attrs.out_layout))


def average(attrs, data):
    assert not attrs.ceil_mode or attrs.count_include_pad or not any(ints(attrs.padding))
    if attrs.count_include_pad and not attrs.ceil_mode:
        return pool(attrs, data, np.mean, 0)
    return pool(attrs, data, np.nanmean, np.nan)


def batch_norm(attrs, data, gamma, beta, mean, variance):
    assert not attrs.training
    shape = [1] * data.ndim
    shape[int(attrs.axis)] = -1
    gamma, beta, wide_mean, wide_variance = (
        v.reshape(shape) for v in (gamma, beta, mean, variance)
    )
    result = (data - wide_mean) / np.sqrt(wide_variance + float(attrs.epsilon))
    result = result * gamma if attrs.scale else result
    return (result + beta if attrs.center else result), mean, variance


def layer_norm(attrs, data, gamma, beta):
    axes = tuple(axis % data.ndim for axis in ints(attrs.axes))
    shape = [extent if axis in axes else 1 for axis, extent in enumerate(data.shape)]
    assert list(axes) == sorted(axes)
    centered = data - data.mean(axis=axes, keepdims=True)
    spread = np.sqrt(data.var(axis=axes, keepdims=True) + float(attrs.epsilon))
    return centered / spread * gamma.reshape(shape) + beta.reshape(shape)


def split(attrs, data):
    sections = attrs.indices_or_sections
    sections = int(sections) if isinstance(sections, IntImm) else ints(sections)
    return tuple(np.split(data, sections, axis=int(attrs.axis)))


def reduction(function):
    def reduce(attrs, data):
        axes = None if attrs.axis is None else tuple(ints(attrs.axis))
        return function(data, axis=axes, keepdims=bool(attrs.keepdims))

    return reduce


def softmax(attrs, data):
    powers = np.exp(data - data.max(axis=int(attrs.axis), keepdims=True))
    return powers / powers.sum(axis=int(attrs.axis), keepdims=True)


def pad(attrs, data):
    assert attrs.pad_mode == "constant"
    widths = np.reshape(ints(attrs.pad_width), (-1, 2))
    return np.pad(data, widths, constant_values=float(attrs.pad_value))


def strided_slice(_attrs, data, axes, begin, end, strides=None):
    slices = [slice(None)] * data.ndim
    for axis, first, last, step in zip(axes, begin, end, strides or [1] * len(axes), strict=True):
        slices[int(axis)] = slice(int(first), int(last), int(step))
    return data[tuple(slices)]


def plain(function):
    return lambda _attrs, *arrays: function(*arrays)


OPERATORS = {
    **{f"relax.nn.conv{rank}d": convolution for rank in (1, 2, 3)},
    **{
        f"relax.nn.max_pool{rank}d": lambda attrs, x: pool(attrs, x, np.max, -np.inf)
        for rank in (1, 2, 3)
    },
    **{f"relax.nn.avg_pool{rank}d": average for rank in (1, 2, 3)},
    "relax.nn.batch_norm": batch_norm,
    "relax.nn.dropout": lambda _attrs, x: (x, np.ones_like(x)),
    "relax.nn.relu": plain(lambda x: np.maximum(x, 0)),
    "relax.nn.softmax": softmax,
    "relax.nn.pad": pad,
    "relax.add": plain(np.add),
    "relax.subtract": plain(np.subtract),
    "relax.multiply": plain(np.multiply),
    "relax.divide": plain(np.divide),
    "relax.power": plain(np.power),
    "relax.maximum": plain(np.maximum),
    "relax.minimum": plain(np.minimum),
    "relax.greater": plain(np.greater),
    "relax.where": plain(np.where),
    "relax.nn.leakyrelu": lambda attrs, x: np.where(x > 0, x, float(attrs.alpha) * x),
    "relax.negative": plain(np.negative),
    "relax.sqrt": plain(np.sqrt),
    "relax.exp": plain(np.exp),
    "relax.nn.gelu": plain(lambda x: x * (1 + special.erf(x / 2**0.5)) / 2),
    "relax.tanh": plain(np.tanh),
    "relax.sigmoid": plain(lambda x: 1 / (1 + np.exp(-x))),
    "relax.clip": plain(np.clip),
    "relax.matmul": plain(np.matmul),
    "relax.sum": reduction(np.sum),
    "relax.mean": reduction(np.mean),
    "relax.max": reduction(np.max),
    "relax.min": reduction(np.min),
    "relax.concat": lambda attrs, xs: np.concatenate(xs, axis=int(attrs.axis)),
    "relax.stack": lambda attrs, xs: np.stack(xs, axis=int(attrs.axis or 0)),
    "relax.permute_dims": lambda attrs, x: x.transpose(
        None if attrs.axes is None else ints(attrs.axes)
    ),
    "relax.reshape": plain(np.reshape),
    "relax.broadcast_to": plain(np.broadcast_to),
    "relax.squeeze": lambda attrs, x: np.squeeze(
        x, None if attrs.axis is None else tuple(ints(attrs.axis))
    ),
    "relax.nn.layer_norm": layer_norm,
    "relax.split": split,
    "relax.strided_slice": strided_slice,
    "relax.expand_dims": lambda attrs, x: np.expand_dims(x, tuple(ints(attrs.axis))),
}


class Evaluator:
    """The values of the variables of a function for some inputs."""

    def __init__(self, func, inputs):
        self.values = dict(zip(func.params, inputs))
        for block in func.body.blocks:
            for binding in block.bindings:
                self.values[binding.var] = self.value(binding.value)
        self.result = self.value(func.body.body)

    def value(self, expr):
        if isinstance(expr, GenericConst):
            array = expr.value.numpy()
            return array.astype("float64") if array.dtype == np.float32 else array
        if isinstance(expr, relax.Var):
            return self.values[expr]
        if isinstance(expr, relax.Tuple):
            return tuple(self.value(item) for item in expr.fields)
        if isinstance(expr, relax.TupleGetItem):
            return self.value(expr.tuple_value)[expr.index]
        if isinstance(expr, relax.ShapeExpr):
            return tuple(ints(expr))
        if isinstance(expr, relax.Call):
            return OPERATORS[expr.op.name](expr.attrs, *map(self.value, expr.args))
        return float(expr.value)


def evaluate(mod, *inputs, name="main"):
    """Run a function of a module on float64 copies of some arrays."""
    return Evaluator(mod[name], [array.astype("float64") for array in inputs]).result

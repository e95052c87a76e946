# SPDX-License-Identifier: Apache-2.0
"""The workloads that spaces are made of, and how to find one."""

import importlib
from collections.abc import Callable

from tvm import te, tirx
from tvm.s_tir.meta_schedule.testing import te_workload

from .definition import Definition, define, define_whole
from .layers import LAYERS, layer_norm
from .space import Space, SpaceError


class UnknownDefinitionError(Exception):
    """No definition has that name."""


class UntrustedDefinitionError(SpaceError):
    """A space file names a function to call that the user has not named."""


_trusted: set[str] = set()


def trust(*names: str) -> None:
    """Let space files name these functions, each ``package.module:function``, in this process."""
    _trusted.update(names)


def trusted() -> tuple[str, ...]:
    """Functions that space files may name."""
    return tuple(sorted(_trusted))


def definition_of(space: Space) -> Definition:
    """Find the definition that a space file names.

    Raises ``UntrustedDefinitionError`` if the file names a function that was not given to
    ``trust``: to find the definition is to import and call it. Raises ``UnknownDefinitionError`` if
    there is none of that name.
    """
    if ":" in space.definition and space.definition not in _trusted:
        raise UntrustedDefinitionError(
            f"space {space.name} is defined by {space.definition!r}, which is code to import and "
            "run, and no definition of this package; if you trust it, name it with --trust "
            f"{space.definition}"
        )
    return find_definition(space.definition)


def find_definition(text: str) -> Definition:
    """Find a definition by its name, or one of the user's.

    ``text``: a name of ``DEFINITIONS`` or of ``LAYERS``, or ``package.module:function``, a function
    without parameters that returns a ``Definition``. Raises ``UnknownDefinitionError`` if there is
    none.
    """
    if ":" in text:
        module, _, attribute = text.partition(":")
        try:
            definition = getattr(importlib.import_module(module), attribute)()
        except (ImportError, AttributeError, TypeError) as error:
            raise UnknownDefinitionError(f"{text}: {error}") from error
        if not isinstance(definition, Definition):
            raise UnknownDefinitionError(f"{text}() returned {definition!r}, expected a Definition")
        return definition
    known = DEFINITIONS | LAYERS
    if text not in known:
        raise UnknownDefinitionError(
            f"{text!r} is no workload, expected one of {', '.join(known)}, or "
            "package.module:function that returns a Definition"
        )
    return known[text]()


def sampled_definitions() -> dict[str, Callable[[], Definition]]:
    """Workloads with MetaSchedule's whole space, which can be sampled but not enumerated."""
    whole = {name: make for name, make in DEFINITIONS.items() if name.startswith("whole_")}
    return whole | LAYERS


def _dense_bias_relu(rows: int, columns: int, inner: int) -> list[te.Tensor]:
    data = te.placeholder((rows, inner), name="data")
    weight = te.placeholder((inner, columns), name="weight")
    bias = te.placeholder((columns,), name="bias")
    k = te.reduce_axis((0, inner), name="k")
    dense = te.compute(
        (rows, columns), lambda i, j: te.sum(data[i, k] * weight[k, j], axis=k), name="dense"
    )
    biased = te.compute((rows, columns), lambda i, j: dense[i, j] + bias[j], name="biased")
    zero = tirx.const(0, "float32")
    relu = te.compute((rows, columns), lambda i, j: te.max(biased[i, j], zero), name="relu")
    return [data, weight, bias, relu]


_t = te_workload

DEFINITIONS: dict[str, Callable[[], Definition]] = dict(
    [
        define(
            "dense",
            "matrix product 128x128x128",
            lambda: _t.matmul(128, 128, 128),
            "SRSRS",
            unroll=(),
        ),
        define(
            "batch_matmul",
            "4 matrix products 64x64x64",
            lambda: _t.batch_matmul_nkkm(4, 64, 64, 64),
            "SRSR",
            unroll=(0, 512),
        ),
        define(
            "conv2d_3x3",
            "3x3 convolution NHWC 14x14, 32 to 32 channels",
            lambda: _t.conv2d_nhwc(1, 14, 14, 32, 32, 3, 1, 1),
            "SRS",
            unroll=(0, 64),
        ),
        define(
            "conv2d_1x1",
            "1x1 convolution NHWC 14x14, 128 to 64 channels",
            lambda: _t.conv2d_nhwc(1, 14, 14, 128, 64, 1, 1, 0),
            "SRSR",
            unroll=(0, 512),
        ),
        define(
            "conv2d_nchw",
            "3x3 convolution NCHW 14x14, 32 to 32 channels",
            lambda: _t.conv2d_nchw(1, 14, 14, 32, 32, 3, 3, 1, 1),
            "SRS",
            unroll=(0, 64),
        ),
        define(
            "depthwise",
            "3x3 depthwise convolution NHWC 28x28, 32 channels",
            lambda: _t.depthwise_conv2d_nhwc(1, 28, 28, 32, 3, 1, 1),
            "SRSR",
            unroll=(),
        ),
        define(
            "layer_norm",
            "layer norm over the last axis of 64x256",
            lambda: layer_norm(64, 256),
            "SRS",
            unroll=(),
            rfactor=True,
        ),
        define(
            "odd",
            "matrix product 77x105x143",
            lambda: _t.matmul(77, 105, 143),
            "SRSRS",
            unroll=(0, 512),
        ),
        define(
            "dense_bias_relu",
            "matrix product 64x128x256 with bias and ReLU fused",
            lambda: _dense_bias_relu(64, 128, 256),
            "SRSR",
            unroll=(0, 512),
            write_levels=(1, 2),
        ),
        define(
            "matmul_parallel",
            "matrix product 64x128x128",
            lambda: _t.matmul(64, 128, 128),
            "SRS",
            write_levels=(1,),
            parallel=True,
        ),
        define(
            "conv1d",
            "convolution of 3 NLC 56, 64 to 64 channels",
            lambda: _t.conv1d_nlc(1, 56, 64, 64, 3, 1, 1),
            "SRS",
            unroll=(0, 64),
        ),
        define(
            "conv2d_bn_relu",
            "3x3 convolution NCHW 14x14, 16 to 32 channels, with bias, batch norm and ReLU fused",
            lambda: _t.conv2d_nchw_bias_bn_relu(1, 14, 14, 16, 32, 3, 3, 1, 1),
            "SRS",
            unroll=(0, 64),
        ),
        define(
            "conv2d_dilated",
            "3x3 convolution NHWC 14x14 of dilation 2, 32 to 32 channels",
            lambda: _t.conv2d_nhwc(1, 14, 14, 32, 32, 3, 1, 2, 2),
            "SRS",
            unroll=(0, 64),
        ),
        define(
            "dense_flat",
            "matrix product 16x512x256",
            lambda: _t.matmul(16, 512, 256),
            "SRSR",
            unroll=(0, 64, 512),
        ),
        define(
            "depthwise_stride2",
            "3x3 depthwise convolution NHWC 28x28 of stride 2, 32 channels",
            lambda: _t.depthwise_conv2d_nhwc(1, 28, 28, 32, 3, 2, 1),
            "SRSR",
            unroll=(),
        ),
        define_whole("whole_dense", "matrix product 128x512x512", lambda: _t.matmul(128, 512, 512)),
        define_whole(
            "whole_conv2d_3x3",
            "3x3 convolution NHWC 28x28, 64 to 64 channels",
            lambda: _t.conv2d_nhwc(1, 28, 28, 64, 64, 3, 1, 1),
        ),
        define_whole(
            "whole_depthwise",
            "3x3 depthwise convolution NHWC 112x112, 32 channels",
            lambda: _t.depthwise_conv2d_nhwc(1, 112, 112, 32, 3, 1, 1),
        ),
        define_whole(
            "whole_softmax", "softmax over the last axis of 64x256", lambda: _t.softmax_mn(64, 256)
        ),
    ]
)
"""The definitions of spaces by name; each is made when asked for."""

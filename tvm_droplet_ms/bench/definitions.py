# SPDX-License-Identifier: Apache-2.0
"""The workloads of the spaces, and a lookup by name."""

import importlib
from collections.abc import Callable
from functools import partial

from tvm import te, tirx
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target

from .definition import Cut, Definition, define
from .layers import (
    LAYERS,
    Workload,
    batch_product,
    convolution,
    convolution_nchw,
    depthwise,
    layer_norm,
    product,
    softmax,
)
from .space import Space, SpaceError


class UnknownDefinitionError(Exception):
    """No definition has that name."""


class UntrustedDefinitionError(SpaceError):
    """A space file names a function that the user does not trust."""


_trusted: set[str] = set()


def trust(*names: str) -> None:
    """Let space files name these functions, each ``package.module:function``, in this process."""
    _trusted.update(names)


def trusted() -> tuple[str, ...]:
    """The functions that space files may name."""
    return tuple(sorted(_trusted))


def definition_of(space: Space) -> Definition:
    """Find the definition that a space file names.

    Raises ``UntrustedDefinitionError`` if the file names a function that was not passed to
    ``trust``, because the lookup imports and calls it. Raises ``UnknownDefinitionError`` if no
    definition has that name.
    """
    if ":" in space.definition and space.definition not in _trusted:
        raise UntrustedDefinitionError(
            f"space {space.name} is defined by {space.definition!r}, which is code to import and "
            "run, and no definition of this package; if you trust it, name it with --trust "
            f"{space.definition}"
        )
    return find_definition(space.definition)


def context_of(space: Space) -> TuneContext:
    """A context that replays the traces of a space."""
    return definition_of(space).context(Target(dict(space.target)), "replay-trace")


def find_definition(text: str) -> Definition:
    """Find a definition of the package or the user by its name.

    ``text``: a name in ``DEFINITIONS`` or ``LAYERS``, or ``package.module:function``, a function
    without parameters that returns a ``Definition``. Raises ``UnknownDefinitionError`` if the
    definition does not exist.
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
    return {name: DEFINITIONS[name] for name in _WHOLE} | LAYERS


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


_CUT: dict[str, tuple[Workload, Cut]] = {
    "dense": (product(128, 128, 128), Cut("SRSRS", unroll=())),
    "batch_matmul": (batch_product(4, 64, 64, 64), Cut("SRSR", unroll=(0, 512))),
    "conv2d_3x3": (convolution(14, 32, 32), Cut("SRS", unroll=(0, 64))),
    "conv2d_1x1": (convolution(14, 128, 64, kernel=1), Cut("SRSR", unroll=(0, 512))),
    "conv2d_nchw": (convolution_nchw(14, 32, 32), Cut("SRS", unroll=(0, 64))),
    "depthwise": (depthwise(28, 32), Cut("SRSR", unroll=())),
    "layer_norm": (layer_norm(64, 256), Cut("SRS", unroll=(), rfactor=True)),
    "odd": (product(77, 105, 143), Cut("SRSRS", unroll=(0, 512))),
    "dense_bias_relu": (
        (
            "matrix product 64x128x256 with bias and ReLU fused",
            lambda: _dense_bias_relu(64, 128, 256),
        ),
        Cut("SRSR", unroll=(0, 512), write_levels=(1, 2)),
    ),
    "matmul_parallel": (product(64, 128, 128), Cut("SRS", write_levels=(1,), parallel=True)),
    "conv1d": (
        (
            "convolution of 3 NLC 56, 64 to 64 channels",
            lambda: te_workload.conv1d_nlc(1, 56, 64, 64, 3, 1, 1),
        ),
        Cut("SRS", unroll=(0, 64)),
    ),
    "conv2d_bn_relu": (
        (
            "3x3 convolution NCHW 14x14, 16 to 32 channels, with bias, batch norm and ReLU fused",
            lambda: te_workload.conv2d_nchw_bias_bn_relu(1, 14, 14, 16, 32, 3, 3, 1, 1),
        ),
        Cut("SRS", unroll=(0, 64)),
    ),
    "conv2d_dilated": (convolution(14, 32, 32, dilation=2), Cut("SRS", unroll=(0, 64))),
    "dense_flat": (product(16, 512, 256), Cut("SRSR", unroll=(0, 64, 512))),
    "depthwise_stride2": (depthwise(28, 32, stride=2), Cut("SRSR", unroll=())),
}

_WHOLE: dict[str, Workload] = {
    "whole_dense": product(128, 512, 512),
    "whole_conv2d_3x3": convolution(28, 64, 64),
    "whole_depthwise": depthwise(112, 32),
    "whole_softmax": softmax(64, 256),
}

DEFINITIONS: dict[str, Callable[[], Definition]] = {
    **{name: partial(define, name, *workload, cut) for name, (workload, cut) in _CUT.items()},
    **{name: partial(define, name, *workload) for name, workload in _WHOLE.items()},
}
"""Functions that make the definitions of spaces, by name."""

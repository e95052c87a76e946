# SPDX-License-Identifier: Apache-2.0
"""The converters of this package by operator."""

import functools
from collections.abc import Iterable
from typing import Any

from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from . import (
    detection,
    elementwise,
    normalization,
    pooling,
    quantized,
    resize,
    scatter,
    shapes,
    signal,
)
from .recurrence import converters as recurrence

_SPELLED = {"Dft": "DFT", "Gru": "GRU", "Lstm": "LSTM", "Rnn": "RNN", "Stft": "STFT"}
"""Map from the names of converters to operators of different names."""


@functools.cache
def converters() -> dict[str, Any]:
    """The converters by operator: public classes of the modules. They precede TVM's."""
    modules = (
        *(detection, elementwise, normalization, pooling, quantized, recurrence, resize, scatter),
        *(shapes, signal),
    )
    found = {_SPELLED.get(name, name): value for name, value in public_converters(modules).items()}
    return {**found, "Scatter": scatter.ScatterElements}


def public_converters(modules: Iterable[Any]) -> dict[str, Any]:
    """The public converters that modules define, by the names of their classes."""
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, OnnxOpConverter)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }

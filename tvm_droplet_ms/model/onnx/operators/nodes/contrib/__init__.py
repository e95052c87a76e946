# SPDX-License-Identifier: Apache-2.0
"""Converters of the operators of ONNX Runtime: the domain "com.microsoft" (ContribOperators.md)."""

import functools
from typing import Any

from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from . import (
    attention,
    grouped_attention,
    integer_products,
    normalization,
    packed_weights,
    products,
)

DOMAIN = "com.microsoft"

_WITHOUT_DOMAIN = ("SimplifiedLayerNormalization",)
"""Operators that ONNX Runtime puts into ONNX's own domain."""


@functools.cache
def _converters() -> dict[str, Any]:
    modules = (
        *(attention, grouped_attention, integer_products),
        *(normalization, packed_weights, products),
    )
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, OnnxOpConverter)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }


def contrib_converter(domain: str, operator: str) -> Any | None:
    """The converter of an operator of ONNX Runtime; None for other operators."""
    if domain == DOMAIN or operator in _WITHOUT_DOMAIN:
        return _converters().get(operator)
    return None

# SPDX-License-Identifier: Apache-2.0
"""Converters of the operators of ONNX Runtime: the domain "com.microsoft" (ContribOperators.md)."""

import functools
from typing import Any

from ..recurrence import byte_lstm
from ..table import public_converters
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
"""Operators of ONNX Runtime that it puts into the standard ONNX domain."""


@functools.cache
def _converters() -> dict[str, Any]:
    return public_converters(
        (
            *(attention, byte_lstm, grouped_attention, integer_products, normalization),
            *(packed_weights, products),
        )
    )


def contrib_converter(domain: str, operator: str) -> Any | None:
    """The converter of an operator of ONNX Runtime. None for other operators."""
    if domain == DOMAIN or operator in _WITHOUT_DOMAIN:
        return _converters().get(operator)
    return None

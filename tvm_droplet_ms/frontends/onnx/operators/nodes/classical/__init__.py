# SPDX-License-Identifier: Apache-2.0
"""Converters of classical machine learning: the domain "ai.onnx.ml"."""

import functools
from typing import Any

from ..table import public_converters
from . import categories, features, linear, trees, vectors

DOMAIN = "ai.onnx.ml"


@functools.cache
def classical_converters() -> dict[str, Any]:
    """The converters by operator."""
    return public_converters((categories, features, linear, trees, vectors))

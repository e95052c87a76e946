# SPDX-License-Identifier: Apache-2.0
"""Converters of the operators of ONNX Runtime: the domain "com.microsoft" (ContribOperators.md)."""

from functools import partial

from ...operands import converts as _converts

DOMAIN = "com.microsoft"

converts = partial(_converts, domain=DOMAIN)

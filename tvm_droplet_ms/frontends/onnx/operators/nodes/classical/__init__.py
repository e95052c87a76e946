# SPDX-License-Identifier: Apache-2.0
"""Converters of classical machine learning: the domain "ai.onnx.ml"."""

from functools import partial

from ...operands import converts as _converts

DOMAIN = "ai.onnx.ml"

converts = partial(_converts, domain=DOMAIN)

# SPDX-License-Identifier: Apache-2.0
"""Quantized models in integers: what is dequantized, and products of it."""

# SPDX-License-Identifier: Apache-2.0
"""Quantized models in integers: dequantized tensors and their products."""

# SPDX-License-Identifier: Apache-2.0
"""Quantised models in integers: what is dequantised, and products of it."""

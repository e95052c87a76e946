# SPDX-License-Identifier: Apache-2.0
"""Layers of bfloat16: which are, and a convolution whose padding stays in it."""

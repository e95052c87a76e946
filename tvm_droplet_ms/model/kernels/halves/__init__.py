# SPDX-License-Identifier: Apache-2.0
"""Kernels of bfloat16: a convolution whose padding stays in it, and a product of any rows."""

# SPDX-License-Identifier: Apache-2.0
"""Kernels for packed weights, and marks for cached and for small weights."""

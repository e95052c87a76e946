# SPDX-License-Identifier: Apache-2.0
"""Convolutions with Winograd's algorithm."""

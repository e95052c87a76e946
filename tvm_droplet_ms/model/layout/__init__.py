# SPDX-License-Identifier: Apache-2.0
"""Convolutions in NHWC, and the transposes and shuffles that the conversion leaves."""

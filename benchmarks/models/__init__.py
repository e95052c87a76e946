# SPDX-License-Identifier: Apache-2.0
"""Comparison of tuned models with other programs that run models."""

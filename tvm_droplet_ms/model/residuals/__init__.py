# SPDX-License-Identifier: Apache-2.0
"""Residuals: sums that are written over one of their terms."""

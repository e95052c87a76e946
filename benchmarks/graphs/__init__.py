# SPDX-License-Identifier: Apache-2.0
"""Comparison of searched graphs with the imported and the prepared graph."""

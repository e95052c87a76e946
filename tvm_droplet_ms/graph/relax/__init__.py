# SPDX-License-Identifier: Apache-2.0
"""Relax functions as e-graphs, and back."""

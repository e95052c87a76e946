# SPDX-License-Identifier: Apache-2.0
"""Converts Relax functions to e-graphs and back."""

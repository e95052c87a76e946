# SPDX-License-Identifier: Apache-2.0
"""Measured kernel times as prices."""

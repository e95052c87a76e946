# SPDX-License-Identifier: Apache-2.0
"""Converters, grouped by topic."""

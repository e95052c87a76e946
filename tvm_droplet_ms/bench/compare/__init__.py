# SPDX-License-Identifier: Apache-2.0
"""Comparison of search strategies on measured spaces."""

# SPDX-License-Identifier: Apache-2.0
"""Evaluation of search strategies: measured spaces, and replay of searches on them."""

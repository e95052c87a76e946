# SPDX-License-Identifier: Apache-2.0
"""Ranking of points by a draft, before any replay."""

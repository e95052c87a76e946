# SPDX-License-Identifier: Apache-2.0
"""Choices that only the whole model can tell: Winograd's algorithm, near-best schedules."""

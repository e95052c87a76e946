# SPDX-License-Identifier: Apache-2.0
"""Choices of the whole model: its precision, Winograd's algorithm, near-best schedules."""

# SPDX-License-Identifier: Apache-2.0
"""Choices for the whole model: its precision, Winograd's algorithm, near-best schedules."""

# SPDX-License-Identifier: Apache-2.0
"""Descents, which choose the next schedules to measure from the measurements so far."""

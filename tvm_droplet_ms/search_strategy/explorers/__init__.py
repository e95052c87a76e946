# SPDX-License-Identifier: Apache-2.0
"""Explorers, which choose the schedules to measure before the first descent."""

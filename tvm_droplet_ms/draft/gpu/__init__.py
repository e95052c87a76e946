# SPDX-License-Identifier: Apache-2.0
"""Schedules that a GPU cannot launch."""

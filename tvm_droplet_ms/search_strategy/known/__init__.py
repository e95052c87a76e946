# SPDX-License-Identifier: Apache-2.0
"""Schedules that are known from elsewhere, refitted to a task."""

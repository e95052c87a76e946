# SPDX-License-Identifier: Apache-2.0
"""Known schedules of other tasks, refitted to a task."""

# SPDX-License-Identifier: Apache-2.0
"""Detection of schedules that a GPU cannot launch."""

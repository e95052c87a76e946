# SPDX-License-Identifier: Apache-2.0
"""A kernel's arguments, and its best schedules checked and timed on them."""

# SPDX-License-Identifier: Apache-2.0
"""The kernel to measure next, by the clock."""

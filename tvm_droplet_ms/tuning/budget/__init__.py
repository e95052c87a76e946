# SPDX-License-Identifier: Apache-2.0
"""Choose the kernel to measure next, within a time budget."""

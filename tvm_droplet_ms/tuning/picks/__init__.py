# SPDX-License-Identifier: Apache-2.0
"""Pick a schedule for every kernel before any trial."""

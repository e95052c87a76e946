# SPDX-License-Identifier: Apache-2.0
"""A schedule for every kernel before any trial."""

# SPDX-License-Identifier: Apache-2.0
"""Strategies side by side on measured spaces."""

# SPDX-License-Identifier: Apache-2.0
"""Descents: what to measure next, given measurements."""

# SPDX-License-Identifier: Apache-2.0
"""Candidates that are dropped or mended before they are built."""

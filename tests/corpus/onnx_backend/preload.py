# SPDX-License-Identifier: Apache-2.0
"""Imported by the server that worker processes are forked from: it loads the cases once."""

from .cases import load_cases

load_cases()

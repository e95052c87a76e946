# SPDX-License-Identifier: Apache-2.0
"""Whole models beside the programs that people run them with."""

# SPDX-License-Identifier: Apache-2.0
"""Converters, by what the operators are about."""

# SPDX-License-Identifier: Apache-2.0
"""Checks that drop or repair candidates before they are built."""

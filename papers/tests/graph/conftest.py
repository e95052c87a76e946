# SPDX-License-Identifier: Apache-2.0
"""Puts the helpers of this folder in reach of the folders in it: pytest adds it to the path."""

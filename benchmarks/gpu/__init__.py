# SPDX-License-Identifier: Apache-2.0
"""A short tuning run on a GPU that is at hand for minutes only; run ``... gpu --help``."""

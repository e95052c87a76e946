# SPDX-License-Identifier: Apache-2.0
"""A short tuning run on a GPU that is available only for minutes; see ``... gpu --help``."""

# SPDX-License-Identifier: Apache-2.0
"""Spaces and samples made: enumerated, built, timed and collected, with resume."""

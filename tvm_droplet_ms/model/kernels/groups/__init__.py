# SPDX-License-Identifier: Apache-2.0
"""Grouped convolutions, and those that read shuffled channels."""

# SPDX-License-Identifier: Apache-2.0
"""Grouped convolutions, including ones that read shuffled channels."""

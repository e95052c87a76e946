# SPDX-License-Identifier: Apache-2.0
"""Arithmetic that is done at compile time: constants, batch norms, clips and pads."""

# SPDX-License-Identifier: Apache-2.0
"""Arithmetic that is done once: constants, batch norms, clips and pads."""

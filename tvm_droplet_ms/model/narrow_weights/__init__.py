# SPDX-License-Identifier: Apache-2.0
"""Products of floats with low-bit weights, which stay packed in memory."""

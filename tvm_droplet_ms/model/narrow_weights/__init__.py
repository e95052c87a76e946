# SPDX-License-Identifier: Apache-2.0
"""Products of floats and weights of a few bits, which stay packed in memory."""

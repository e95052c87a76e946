# SPDX-License-Identifier: Apache-2.0
"""Models with random weights for measurements."""

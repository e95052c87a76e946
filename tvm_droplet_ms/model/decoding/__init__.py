# SPDX-License-Identifier: Apache-2.0
"""Passes for decoders: keys that heads share, and rows written into the cache."""

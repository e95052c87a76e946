# SPDX-License-Identifier: Apache-2.0
"""Prefetching of weights, whose memory is what the late layers of a model wait for."""

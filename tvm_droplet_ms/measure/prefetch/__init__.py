# SPDX-License-Identifier: Apache-2.0
"""Prefetching of weights, because the late layers of a model wait for weights from memory."""

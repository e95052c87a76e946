# SPDX-License-Identifier: Apache-2.0
"""PaCM, Pruner's pattern-aware cost model."""

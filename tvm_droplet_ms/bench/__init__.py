# SPDX-License-Identifier: Apache-2.0
"""Evaluation of search strategies: measured spaces, replay, and live benchmarks."""

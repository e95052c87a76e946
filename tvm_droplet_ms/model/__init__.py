# SPDX-License-Identifier: Apache-2.0
"""Whole models: passes that prepare the graph of a model for tuning."""

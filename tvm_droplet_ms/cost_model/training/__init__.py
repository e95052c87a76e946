# SPDX-License-Identifier: Apache-2.0
"""Reads training data, trains cost models, and evaluates their rankings."""

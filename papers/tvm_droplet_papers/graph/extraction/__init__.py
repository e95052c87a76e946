# SPDX-License-Identifier: Apache-2.0
"""Extracts the cheapest graph of an e-graph: operators and layouts jointly. Imports no TVM."""

# SPDX-License-Identifier: Apache-2.0
"""The cheapest graph of an e-graph, operators and layouts together. Imports no TVM."""

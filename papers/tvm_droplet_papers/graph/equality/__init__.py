# SPDX-License-Identifier: Apache-2.0
"""Equality of terms: the tensor language, the e-graph and its terms. Imports no TVM."""

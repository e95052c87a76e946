# SPDX-License-Identifier: Apache-2.0
"""The Gaussian process of a descent. Imports no TVM."""

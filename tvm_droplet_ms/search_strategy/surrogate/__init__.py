# SPDX-License-Identifier: Apache-2.0
"""The Gaussian process that a descent asks. Imports no TVM."""

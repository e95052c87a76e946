# SPDX-License-Identifier: Apache-2.0
"""The comparison of searches of kernels: methods, results, and the report."""

# SPDX-License-Identifier: Apache-2.0
"""The comparison of search methods on kernels: methods, results, and the report."""

# SPDX-License-Identifier: Apache-2.0
"""What compares searches of kernels: methods, results, and the report."""

# SPDX-License-Identifier: Apache-2.0
"""From a graph to kernels, and from kernels to a shared library."""

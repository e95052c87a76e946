# SPDX-License-Identifier: Apache-2.0
"""Kernels that Relax legalises badly for a CPU."""

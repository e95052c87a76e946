# SPDX-License-Identifier: Apache-2.0
"""Kernels that Relax legalizes badly for a CPU."""

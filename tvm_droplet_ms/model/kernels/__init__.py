# SPDX-License-Identifier: Apache-2.0
"""Kernels that replace slow Relax legalizations on CPUs."""

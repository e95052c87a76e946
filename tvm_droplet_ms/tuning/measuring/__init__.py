# SPDX-License-Identifier: Apache-2.0
"""Kernels timed as they run inside a model."""

# SPDX-License-Identifier: Apache-2.0
"""The start of a kernel's search: a prior, known schedules, and schedules of similar kernels."""

# SPDX-License-Identifier: Apache-2.0
"""Compare a model's outputs with the reference, and find the schedules that change them."""

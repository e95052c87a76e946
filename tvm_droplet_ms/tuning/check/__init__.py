# SPDX-License-Identifier: Apache-2.0
"""A model's outputs compared with the reference, and the schedules that change them."""

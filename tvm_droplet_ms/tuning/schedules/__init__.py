# SPDX-License-Identifier: Apache-2.0
"""The schedules that a model is compiled with: measured, picked, or chosen inside the model."""

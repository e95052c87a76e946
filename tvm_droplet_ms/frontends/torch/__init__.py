# SPDX-License-Identifier: Apache-2.0
"""Import a PyTorch model for tuning."""

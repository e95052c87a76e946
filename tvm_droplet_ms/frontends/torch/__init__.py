# SPDX-License-Identifier: Apache-2.0
"""Import a PyTorch model for tuning."""

from .importing import import_torch
from .loading import load_exported_program

__all__ = ["import_torch", "load_exported_program"]

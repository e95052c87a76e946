# SPDX-License-Identifier: Apache-2.0
"""A PyTorch model as a model to tune."""

from .importing import import_torch
from .loading import load_exported_program

__all__ = ["import_torch", "load_exported_program"]

# SPDX-License-Identifier: Apache-2.0
"""Keeps PyTorch out of the worker server while it imports TVM."""

import sys

_NAME = "_NoPyTorch"

KEEP_OUT = (
    f"sys.meta_path.insert(0, type('{_NAME}', (), {{'find_spec': staticmethod(lambda name, *_: "
    "(_ for _ in ()).throw(ModuleNotFoundError('PyTorch is kept out', name=name)) "
    "if name == 'torch' else None)})()); "
)
"""A statement that makes ``import torch`` fail as if PyTorch were not installed.

tvm_ffi and TVM import PyTorch if they find it, which takes 3 s, 200 MB of memory and 600 MB of
address space. The workers are forked from the server, and this package's tasks do not need PyTorch.
A None in ``sys.modules`` would suffice for tvm_ffi and TVM, but SciPy mistakes it for PyTorch.
"""


def let_pytorch_in() -> None:
    """Let ``import torch`` find PyTorch again, for users' tasks that need it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != _NAME]

# SPDX-License-Identifier: Apache-2.0
"""Keeps PyTorch out of the worker server while it imports TVM."""

import sys

_NAME = "_NoPyTorch"

KEEP_OUT = (
    f"sys.meta_path.insert(0, type('{_NAME}', (), {{'find_spec': staticmethod(lambda name, *_: "
    "(_ for _ in ()).throw(ModuleNotFoundError('PyTorch is kept out', name=name)) "
    "if name == 'torch' else None)})()); "
)
"""The statement after which ``import torch`` fails, as where it is not installed.

tvm_ffi and TVM import PyTorch where they find it, which takes 3 s, 200 MB and 600 MB of addresses.
The workers are forked from the server, and none of ours needs it. A None in ``sys.modules`` would
do for them, but SciPy takes what stands there for PyTorch.
"""


def let_pytorch_in() -> None:
    """Let ``import torch`` find PyTorch again, for tasks of users that need it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != _NAME]

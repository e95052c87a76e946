# SPDX-License-Identifier: Apache-2.0
"""Keeps PyTorch out of the worker server while it imports TVM."""

import sys

KEEP_OUT = "sys.modules['torch'] = None; "
"""The statement after which ``import torch`` fails.

tvm_ffi and TVM import PyTorch where they find it, which takes 3 s, 200 MB and 600 MB of addresses.
The workers are forked from the server, and none of ours needs it.
"""


def let_pytorch_in() -> None:
    """Let ``import torch`` find PyTorch again, for tasks of users that need it."""
    if "torch" in sys.modules and sys.modules["torch"] is None:
        del sys.modules["torch"]

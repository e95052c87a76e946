# SPDX-License-Identifier: Apache-2.0
"""Runs tuned models with NumPy, apache-tvm-ffi and TVM's runtime library alone.

This folder is complete: it imports no other part of the package, and no compiler. Imports no TVM.
"""

from .binding import IOBinding
from .errors import SessionError
from .node_args import NodeArg
from .session import InferenceSession

__all__ = ["IOBinding", "InferenceSession", "NodeArg", "SessionError"]

# SPDX-License-Identifier: Apache-2.0
"""Errors of ``tune_kernel``. Imports no TVM."""


class KernelError(ValueError):
    """A kernel cannot be tuned as asked; the message says what was expected."""


class KernelInterrupted(KernelError):
    """A run was interrupted before it had a schedule to return."""

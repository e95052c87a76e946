# SPDX-License-Identifier: Apache-2.0
"""Raises an error with an explanation on systems other than Linux."""

import sys


def require_linux(name: str) -> None:
    """Raise ``RuntimeError`` in the name of a class or function if this is not Linux."""
    if sys.platform != "linux":
        raise RuntimeError(
            f"{name} needs Linux, and sys.platform is {sys.platform!r}: its worker processes rely "
            "on Linux's process control. Tune with TVM's LocalBuilder and LocalRunner "
            "(tvm.s_tir.meta_schedule.builder, tvm.s_tir.meta_schedule.runner) instead"
        )

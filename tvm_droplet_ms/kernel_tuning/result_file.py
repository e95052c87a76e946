# SPDX-License-Identifier: Apache-2.0
"""The name of a result's file, and the identity of its kernel."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tvm.ir import IRModule

RESULT = "result.json"
"""The file of the work directory that gets the result."""


def workload_hash(mod: "IRModule") -> str:
    """Name a kernel by its structure, alike in every process; the kernel's own name is no part."""
    from tvm_ffi import structural_hash

    return f"{structural_hash(mod) & 0xFFFFFFFFFFFFFFFF:016x}"

# SPDX-License-Identifier: Apache-2.0
"""The modules of TVM that hold the tensor intrinsics of a target."""

from collections.abc import Mapping
from typing import Any

from tvm.runtime import enabled
from tvm.target import Target
from tvm.target.codegen import llvm_get_system_triple

# Modules in the order in which they must be loaded: rocm and arm_cpu import dot_product_common. No
# default rule asks for the dp4a of dot_product_common, but schedules for CUDA devices use it.
_OF_KIND = {
    "cuda": ("dot_product_common", "cuda"),
    "rocm": ("dot_product_common", "rocm"),
    "hexagon": ("hexagon",),
}


_OF_ARCHITECTURE = {
    ("x86", "amd64", "i386", "i486", "i586", "i686"): ("x86",),
    ("aarch64", "arm", "thumb"): ("dot_product_common", "arm_cpu"),
    ("riscv",): ("riscv_cpu",),
}


def modules_of(target: Target | str | Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the modules of a target's backend, or an empty tuple if all modules are needed."""
    # Without LLVM, the package itself imports only CUDA.
    if target is None or not enabled("llvm"):
        return ()
    described: Any = target if isinstance(target, Target) else Target(target)
    if described.kind.name != "llvm":
        return _OF_KIND.get(described.kind.name, ())
    triple = str(described.attrs.get("mtriple") or llvm_get_system_triple())
    for prefixes, names in _OF_ARCHITECTURE.items():
        if triple.startswith(prefixes):
            return names
    return ()

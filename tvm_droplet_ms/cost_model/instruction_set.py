# SPDX-License-Identifier: Apache-2.0
"""Instruction sets of targets; a cost model is valid for targets with the same one."""

from tvm.target import Target
from tvm.target.codegen import llvm_get_cpu_features

VECTOR_EXTENSIONS = ("avx512f", "avx2", "avx", "sse2", "sve2", "sve", "neon", "v")
"""LLVM's names of vector extensions on x86, Arm and RISC-V; of one architecture the widest
first."""


def instruction_set(target: Target) -> str:
    """The instruction set that programs of a target are compiled to.

    The number of cores and the CPU model do not count, only the code of vectorized loops.

    Parameters
    ----------
    target : Target
        The target.

    Returns
    -------
    name : str
        For LLVM the widest vector extension of the target's ``mtriple``, ``mcpu`` and ``mattr``,
        such as "llvm avx512f"; "llvm scalar" without any. For others the kind and its ``arch``,
        such as "cuda sm_80".
    """
    kind = str(target.kind.name)
    if kind == "llvm":
        features = llvm_get_cpu_features(target)
        widest = next((name for name in VECTOR_EXTENSIONS if name in features), "scalar")
        return f"llvm {widest}"
    arch = target.attrs.get("arch")
    return kind if arch is None else f"{kind} {arch}"

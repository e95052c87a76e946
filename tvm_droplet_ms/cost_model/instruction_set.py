# SPDX-License-Identifier: Apache-2.0
"""Instruction sets of targets; a cost model is valid only for targets with the same set."""

import warnings
from collections.abc import Collection

from tvm.target import Target
from tvm.target.codegen import llvm_get_cpu_features

from .training_data import target_text

VECTOR_EXTENSIONS = ("avx512f", "avx2", "avx", "sse2", "sve2", "sve", "neon", "v")
"""LLVM's names of vector extensions on x86, Arm and RISC-V, the widest of each architecture
first."""

WIDEST = "llvm avx512f"
"""The instruction set with four times the register bytes of AVX2 and of NEON."""

_warnings_given: set[str] = set()
"""Texts of the warnings given in this process. Python's own record is lost whenever any code
changes the warning filters, as ``warnings.catch_warnings`` does."""


def instruction_set(target: Target) -> str:
    """The instruction set that programs of a target are compiled to.

    The number of cores and the CPU model do not matter, only the code of vectorized loops. For
    LLVM, this is the widest vector extension of the target's ``mtriple``, ``mcpu`` and ``mattr``,
    such as "llvm avx512f", or "llvm scalar" if there is none. For other kinds, it is the kind and
    its ``arch``, such as "cuda sm_80".
    """
    kind = str(target.kind.name)
    if kind == "llvm":
        features = llvm_get_cpu_features(target)
        widest = next((name for name in VECTOR_EXTENSIONS if name in features), "scalar")
        return f"llvm {widest}"
    arch = target.attrs.get("arch")
    return kind if arch is None else f"{kind} {arch}"


def warn_of_others(learned: Collection[str], target: Target) -> None:
    """Warn if a model was not trained on the instruction set of a target.

    Warns once per process and target: tuning a whole model makes several cost models.
    """
    tuned = instruction_set(target)
    if tuned in learned:
        return
    text = (
        f"the cost model was trained on programs for {', '.join(sorted(learned))}, and tuning "
        f"is for {tuned} (target {target_text(target)}): its predictions may not hold; train a "
        "model on the databases of this target's runs with droplet-ms pretrain, or tune "
        "without a pretrained model"
    )
    if text not in _warnings_given:
        _warnings_given.add(text)
        warnings.warn(text, stacklevel=2)

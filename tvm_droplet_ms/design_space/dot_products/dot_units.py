# SPDX-License-Identifier: Apache-2.0
"""The instructions of a CPU for dot products of bytes and of bfloat16."""

from dataclasses import dataclass, replace

from tvm.target import Target
from tvm.target.codegen import target_has_features

from .dot_intrinsics import BYTES, HALVES, HALVES_DEPTH, SMALL_DEPTH, VNNI_DEPTH, WORDS_DEPTH

VNNI = ("avx512vnni", "avx512vl")
"""CPU features for byte dot products in 512-bit vectors."""


@dataclass(frozen=True)
class DotUnit:
    """The dot-product instructions of a CPU for some dtypes.

    - ``lanes``: the numbers of lanes of its vectors, the longest first.
    - ``depth``: see ``Dot``.
    - ``registers``: the number of vector registers.
    - ``dtypes``: the dtypes of the factors.
    - ``is_small``: whether they accept only unsigned bytes with signed 7-bit bytes.
    """

    lanes: tuple[int, ...]
    depth: int
    registers: int
    dtypes: tuple[str, ...] = BYTES
    is_small: bool = False

    @property
    def widens(self) -> bool:
        """Whether bytes must be widened to words, as on CPUs without VNNI."""
        return self.dtypes == BYTES and self.depth == WORDS_DEPTH

    @property
    def of_small(self) -> "DotUnit":
        """The unit for 7-bit weights."""
        return replace(self, depth=SMALL_DEPTH, is_small=True)


def dot_unit(target: Target) -> DotUnit | None:
    """Return the byte unit of a target; None unless it is an x86 CPU with AVX2."""

    def has(*features: str) -> bool:
        return has_features(target, *features)

    if not has("avx2"):
        return None
    if has(*VNNI):
        return DotUnit((16, 8, 4), VNNI_DEPTH, 32)
    if has("avxvnni"):
        return DotUnit((8, 4), VNNI_DEPTH, 16)
    if has("avx512bw", "avx512vl"):
        return DotUnit((16, 8, 4), WORDS_DEPTH, 32)
    return DotUnit((8, 4), WORDS_DEPTH, 16)


def half_unit(target: Target) -> DotUnit | None:
    """Return the bfloat16 unit of a target; None for CPUs without AVX512_BF16."""
    if not has_features(target, "avx512bf16", "avx512vl"):
        return None
    return DotUnit((16, 8, 4), HALVES_DEPTH, 32, HALVES)


def has_features(target: Target, *features: str) -> bool:
    """Return whether a target is a CPU with all of the given features."""
    return target.kind.name == "llvm" and bool(target_has_features(list(features), target))

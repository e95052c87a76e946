# SPDX-License-Identifier: Apache-2.0
"""Code generation without LLVM's loop vectorizer, which miscompiles some loops.

LLVM 22 reads ``w[i % 4]`` in a loop of 64 iterations as 8 consecutive elements (see
``docs/upstream/loop_vectorizer.md``). Schedules vectorize loops themselves.
"""

from functools import lru_cache

from tvm.target import Target

_OPTIONS = "cl-opt"
_LEFT_OUT = "-vectorize-loops:bool=0"


def without_loop_vectorizer(target: Target) -> Target:
    """Disable the loop vectorizer of a CPU target. Other targets stay unchanged."""
    return _changed(str(target)) if target.kind.name == "llvm" else target


@lru_cache
def _changed(described: str) -> Target:
    options = dict(Target(described).export())
    return Target({**options, _OPTIONS: [*options.get(_OPTIONS, ()), _LEFT_OUT]})

# SPDX-License-Identifier: Apache-2.0
"""Whether a compiler gets through a schedule's code in reasonable time.

LLVM makes scalars of a vector that is longer than a register and whose length is no power of two.
Unrolled, thousands of them are alive at a time, which takes it a time that grows with their number
to the power of 2.5: 256 steps of 36 numbers took 27 s, and ran no faster than vectors of 12.
"""

from collections.abc import Sequence
from typing import Any

from tvm import DataType, s_tir, tirx
from tvm.ir import IRModule
from tvm.s_tir import Schedule

REGISTER = 64
"""The bytes of the longest vector registers."""

MOST_SCALARS = 2048
"""The scalars of one statement's unrolled steps that are not refused; they take LLVM 0.5 to 1 s."""

_UNROLLED = "pragma_auto_unroll_max_step"


def scalars(mod: IRModule) -> int:
    """Count what LLVM makes of the unrolled vectors of odd lengths.

    Parameters
    ----------
    mod : IRModule
        A scheduled module whose one function is ``main``.

    Returns
    -------
    count : int
        The most of any statement: the length of its vector times the unrolled steps. 0 where no
        vector is both longer than a register and of a length that is no power of two.
    """
    return _most(mod["main"].body, ())


class CodeLimit:
    """Refuses schedules that LLVM would take many seconds to compile.

    It is applied to a schedule as a postprocessor is.
    """

    def apply(self, schedule: Schedule) -> bool:
        """True if a schedule is within the limit."""
        return scalars(schedule.mod) <= MOST_SCALARS

    def __str__(self) -> str:
        return "CodeLimit"


def _most(stmt: Any, loops: Sequence[Any]) -> int:
    """The most scalars of any store in a statement, given the loops around it."""
    if isinstance(stmt, tirx.For):
        return _most(stmt.body, (*loops, stmt))
    if isinstance(stmt, s_tir.SBlockRealize):
        return _most(stmt.block.body, loops)
    if isinstance(stmt, tirx.SeqStmt):
        return max((_most(each, loops) for each in stmt.seq), default=0)
    if isinstance(stmt, tirx.IfThenElse):
        cases = [stmt.then_case, *([] if stmt.else_case is None else [stmt.else_case])]
        return max(_most(each, loops) for each in cases)
    if isinstance(stmt, tirx.BufferStore):
        return _of_store(DataType(str(stmt.buffer.dtype)).itemsize, loops)
    body = getattr(stmt, "body", None)
    return _most(body, loops) if isinstance(body, tirx.Stmt) else 0


def _of_store(size: int, loops: Sequence[Any]) -> int:
    """The size that ``UnrollLoop`` (``unroll_loop.cc``) makes of loops around such a store."""
    vector, steps = 1, 1
    limit = max((int(loop.annotations.get(_UNROLLED, 0)) for loop in loops), default=0)
    for loop in reversed(loops):
        extent = int(loop.extent.value) if isinstance(loop.extent, tirx.IntImm) else 0
        if loop.kind == tirx.ForKind.VECTORIZED:
            vector *= extent
        elif loop.kind == tirx.ForKind.UNROLLED or extent == 1:
            steps *= extent
        elif loop.kind == tirx.ForKind.SERIAL and 0 < steps * extent <= limit:
            steps *= extent
        else:
            break
    is_odd = vector & (vector - 1) != 0 and vector * size > REGISTER
    return vector * steps if is_odd else 0

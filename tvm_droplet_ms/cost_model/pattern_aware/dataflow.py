# SPDX-License-Identifier: Apache-2.0

"""The data movements of a scheduled program, the input of a pattern-aware cost model.

After Pruner (Liu et al., ASPLOS 2025), whose temporal data flow has a block of 23 numbers for each
movement between a GPU's memories. Here a movement is of one buffer access into one level of a CPU's
memory, so that every program has some. Imports no TVM.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..nests import Access, LoopNest

LEVELS = (2.0**11, 2.0**15, 2.0**19, 2.0**24)
"""Bytes of the levels: 32 registers of 64 B, and caches of 32 KiB, 512 KiB and 16 MiB. They are the
same for every machine, as a model's features are."""

NESTS = 3
"""Loop nests described, those of the most iterations."""

BUFFERS = 4
"""Buffers described of a nest, those of the most bytes touched."""

TOKENS = NESTS * BUFFERS * len(LEVELS)
"""Data movements of a program."""

TOKEN_WIDTH = 25
"""Numbers of a data movement."""

STATEMENTS = 6
"""Statements described, those of the most iterations."""

STATEMENT_LOOPS = 6
"""Loops described of a statement, the innermost of more than one iteration."""

STATEMENT_WIDTH = 18 + 3 * STATEMENT_LOOPS
"""Numbers of a statement."""

LINE = 64.0
"""Bytes of a cache line."""

_KINDS = (1, 2, 3)
"""TVM's ``ForKind``: parallel, vectorized, unrolled."""

_PARALLEL, _VECTORIZED = 1, 2


def data_movements(nests: Sequence[LoopNest]) -> np.ndarray:
    """The data movements of a module.

    Into a level goes, at once, what the largest loop touches whose buffers fit into the level
    together, and where none fits what the innermost loop touches. Nests come in the order of their
    iterations, the buffers of a nest in that of the bytes that they touch, and the levels of a
    buffer from the outermost to the registers. In logarithms to base 2 where it is no flag, a
    movement has

    - 4: the level, the registers first, one-hot; none of them for a row that is no movement;
    - 3: whether the buffer is read, written, or both, one-hot;
    - 1: the operations within one movement, plus one;
    - 4: the bytes and the cache lines of all movements together, the different bytes and the
      different lines among them;
    - 2: the bytes and the lines of one movement;
    - 3: whether the next loop outside uses the same bytes again, or else there are more executions
      of the block than bytes within, or neither, one-hot;
    - 3: until the next loop turns, the executions of the block, the bytes of all buffers, and the
      accesses to each byte of this one;
    - 3: the movements; the product of the parallel loops outside; the bytes of all buffers over
      those of the level;
    - 2: the contiguous bytes of one movement and of the innermost loop.

    ``nests``: the loop nests of a module, in its order. Returns an array of shape ``(TOKENS,
    TOKEN_WIDTH)``, float32.
    """
    rows = np.zeros((TOKENS, TOKEN_WIDTH), dtype=np.float32)
    place = 0
    for nest in _largest(nests, NESTS):
        if not nest.accesses:
            continue
        buffers = _buffers(nest)
        inner = _fitting(np.sum([buffer.touched for buffer in buffers], axis=0))
        for buffer in buffers[:BUFFERS]:
            rows[place : place + len(LEVELS)] = _of_buffer(nest, buffer, *inner)[::-1]
            place += len(LEVELS)
    return rows


def statements(nests: Sequence[LoopNest]) -> np.ndarray:
    """The statements of a module: its blocks, in the order of their iterations.

    In logarithms to base 2 where it is no flag, a statement has

    - 1: a flag that it is one;
    - 5: its operations of each kind in all iterations, plus one;
    - 1: its iterations;
    - 3 x 3: of its parallel, vectorized and unrolled loops the count (no logarithm), the product
      and the extent of the innermost;
    - 2: the unroll limit, plus one, and its loops of more than one iteration (no logarithm);
    - 6 x 3: of each of the innermost of these the extent, whether it is vectorized, and whether the
      block writes the same bytes in all its iterations.

    ``nests``: the loop nests of a module, in its order. Returns an array of shape ``(STATEMENTS,
    STATEMENT_WIDTH)``, float32; zeros for a row that is no statement.
    """
    rows = np.zeros((STATEMENTS, STATEMENT_WIDTH), dtype=np.float32)
    for row, nest in zip(rows, _largest(nests, STATEMENTS), strict=False):
        turning = np.flatnonzero(nest.extents > 1)
        row[0] = 1.0
        row[1:6] = np.log2(1.0 + nest.operations * nest.iterations[-1])
        row[6] = np.log2(nest.iterations[-1])
        for number, kind in enumerate(_KINDS):
            extents = nest.extents[turning[nest.kinds[turning] == kind]]
            if len(extents):
                logs = np.log2([extents.prod(dtype=float), extents[0]])
                row[7 + 3 * number : 10 + 3 * number] = len(extents), *logs
        row[16:18] = np.log2(1.0 + nest.unroll_limit), len(turning)
        inner = turning[:STATEMENT_LOOPS]
        loops = [
            np.log2(nest.extents[inner]),
            nest.kinds[inner] == _VECTORIZED,
            _writes_again(nest)[inner],
        ]
        row[18 : 18 + 3 * len(inner)] = np.stack(loops, axis=1).ravel()
    return rows


@dataclass(frozen=True)
class _Buffer:
    """The accesses of a nest to one buffer, all together."""

    is_read: bool
    is_written: bool
    accesses: int
    touched: np.ndarray
    runs: np.ndarray


def _largest(nests: Sequence[LoopNest], count: int) -> list[LoopNest]:
    """The nests of the most iterations, the first of equal ones first."""
    looped = [nest for nest in nests if len(nest.extents)]
    return sorted(looped, key=lambda nest: -float(nest.iterations[-1]))[:count]


def _buffers(nest: LoopNest) -> list[_Buffer]:
    """The buffers of a nest, the one of the most bytes first."""
    of_name: dict[str, list[Access]] = {}
    for access in nest.accesses:
        of_name.setdefault(access.buffer, []).append(access)
    made = [
        _Buffer(
            not all(access.is_write for access in accesses),
            any(access.is_write for access in accesses),
            len(accesses),
            np.max([access.touched for access in accesses], axis=0),
            np.max([access.runs for access in accesses], axis=0),
        )
        for accesses in of_name.values()
    ]
    return sorted(made, key=lambda buffer: -float(buffer.touched[-1]))


def _fitting(working_set: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest loop that fits each level, and the bytes of all buffers in it."""
    loops = np.searchsorted(working_set, LEVELS, side="right") - 1
    loops = np.maximum(loops, 0)
    return loops, working_set[loops]


def _of_buffer(
    nest: LoopNest, buffer: _Buffer, loops: np.ndarray, working_set: np.ndarray
) -> np.ndarray:
    """The movements of a buffer into each level, the registers first."""
    rows = np.zeros((len(LEVELS), TOKEN_WIDTH))
    iterations = nest.iterations[loops]
    movements = nest.iterations[-1] / iterations
    touched = buffer.touched[loops]
    lines = _lines(buffer)
    rows[:, :4] = np.eye(len(LEVELS))
    rows[:, 4:7] = _direction(buffer)
    rows[:, 7] = 1.0 + nest.operations.sum() * iterations
    rows[:, 8] = touched * movements
    rows[:, 9] = lines[loops] * movements
    rows[:, 10], rows[:, 11] = buffer.touched[-1], lines[-1]
    rows[:, 12], rows[:, 13] = touched, lines[loops]
    again = np.array([_used_again(nest, buffer, loop) for loop in loops])
    executions = buffer.accesses * iterations
    within = ~again & (executions > touched)
    rows[:, 14:17] = np.stack([again, within, ~again & ~within], axis=1)
    rows[:, 17], rows[:, 18], rows[:, 19] = iterations, working_set, executions / touched
    outside = np.where(nest.kinds == _PARALLEL, nest.extents, 1).astype(float)
    rows[:, 20] = movements
    rows[:, 21] = outside.prod() / np.cumprod(outside)[loops]
    rows[:, 22] = working_set / np.array(LEVELS)
    rows[:, 23], rows[:, 24] = buffer.runs[loops], buffer.runs[0]
    for column in (*range(7, 14), *range(17, TOKEN_WIDTH)):
        rows[:, column] = np.log2(rows[:, column])
    return rows


def _direction(buffer: _Buffer) -> tuple[bool, bool, bool]:
    both = buffer.is_read and buffer.is_written
    return buffer.is_read and not both, buffer.is_written and not both, both


def _lines(buffer: _Buffer) -> np.ndarray:
    """The cache lines that each loop touches: each contiguous part begins a line."""
    return np.asarray(buffer.touched / buffer.runs * np.ceil(buffer.runs / LINE))


def _used_again(nest: LoopNest, buffer: _Buffer, loop: int) -> bool:
    """True if the next loop outside, of more than one iteration, touches no more bytes."""
    outside = np.flatnonzero(nest.extents[loop + 1 :] > 1)
    return bool(len(outside)) and bool(
        buffer.touched[loop + 1 + outside[0]] == buffer.touched[loop]
    )


def _writes_again(nest: LoopNest) -> np.ndarray:
    """True for each loop in all of whose iterations the block writes the same bytes.

    Of the innermost loop that is not known: it does where there are more iterations than bytes.
    """
    written = [access.touched for access in nest.accesses if access.is_write]
    if not written:
        return np.zeros(len(nest.extents), dtype=bool)
    touched = np.max(written, axis=0)
    first = nest.extents[0] > touched[0]
    return np.concatenate([[first], touched[1:] == touched[:-1]])

# SPDX-License-Identifier: Apache-2.0

"""The data movements of a scheduled program, the input of a pattern-aware cost model.

After Pruner (Liu et al., ASPLOS 2025), whose temporal data flow has a block of 23 numbers for each
movement between a GPU's memories. Here a movement brings one buffer into one level of a CPU's
memory, so that every program has movements. Imports no TVM.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tvm_droplet_ms.cost_model.nests import Access, LoopNest

LEVELS = (2.0**11, 2.0**15, 2.0**19, 2.0**24)
"""Bytes of the levels: 32 registers of 64 B, and caches of 32 KiB, 512 KiB and 16 MiB. They are the
same for every machine, like all features of a model."""

NESTS = 3
"""Number of loop nests described: the nests with the most iterations."""

BUFFERS = 4
"""Number of buffers described per nest: the buffers with the most bytes touched."""

TOKENS = NESTS * BUFFERS * len(LEVELS)
"""Number of data movements of a program."""

TOKEN_WIDTH = 25
"""Number of features of a data movement."""

STATEMENTS = 6
"""Number of statements described: the statements with the most iterations."""

STATEMENT_LOOPS = 6
"""Number of loops described per statement: the innermost loops of more than one iteration."""

STATEMENT_WIDTH = 18 + 3 * STATEMENT_LOOPS
"""Number of features of a statement."""

LINE = 64.0
"""Bytes of a cache line."""

_KINDS = (1, 2, 3)
"""TVM's ``ForKind``: parallel, vectorized, unrolled."""

_PARALLEL, _VECTORIZED = 1, 2


def data_movements(nests: Sequence[LoopNest]) -> np.ndarray:
    """The data movements of a module.

    One movement into a level brings the bytes touched by the largest loop whose buffers fit into
    the level together, or by the innermost loop if none fits. Nests are in descending order of
    iterations, and the buffers of a nest in descending order of touched bytes. The levels of a
    buffer go from the outermost cache to the registers. A movement has these numbers, as logarithms
    to base 2 except for flags:

    - 4: the level, the registers first, one-hot; all 0 for a row without a movement;
    - 3: whether the buffer is read, written, or both, one-hot;
    - 1: the operations within one movement, plus one;
    - 4: the bytes and the cache lines of all movements together, the unique bytes and the unique
      lines among them;
    - 2: the bytes and the lines of one movement;
    - 3: whether the next outer loop uses the same bytes again, or else there are more accesses than
      bytes within one movement, or neither, one-hot;
    - 3: within one movement, the executions of the block, the bytes of all buffers, and the
      accesses to each byte of this buffer;
    - 3: the number of movements; the product of the outer parallel loops; the bytes of all buffers
      divided by the bytes of the level;
    - 2: the contiguous bytes of one movement and of the innermost loop.

    ``nests``: the loop nests of a module, in the module's order. Returns an array of shape
    ``(TOKENS, TOKEN_WIDTH)``, float32.
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
    """The statements of a module: its blocks, in descending order of iterations.

    A statement has these numbers, as logarithms to base 2 except for flags:

    - 1: a flag that the row is a statement;
    - 5: its operations of each kind in all iterations, plus one;
    - 1: its iterations;
    - 3 x 3: for its parallel, vectorized and unrolled loops each, the count (no logarithm), the
      product and the extent of the innermost loop;
    - 2: the unroll limit, plus one, and the number of loops of more than one iteration (no
      logarithm);
    - 6 x 3: for each of the innermost of these loops, the extent, whether it is vectorized, and
      whether the block writes the same bytes in all its iterations.

    ``nests``: the loop nests of a module, in the module's order. Returns an array of shape
    ``(STATEMENTS, STATEMENT_WIDTH)``, float32; zeros for a row without a statement.
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
    """All accesses of a nest to one buffer."""

    is_read: bool
    is_written: bool
    accesses: int
    touched: np.ndarray
    runs: np.ndarray


def _largest(nests: Sequence[LoopNest], count: int) -> list[LoopNest]:
    """The nests with the most iterations; ties keep their order."""
    looped = [nest for nest in nests if len(nest.extents)]
    return sorted(looped, key=lambda nest: -float(nest.iterations[-1]))[:count]


def _buffers(nest: LoopNest) -> list[_Buffer]:
    """The buffers of a nest, in descending order of touched bytes."""
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
    """The cache lines that each loop touches: each contiguous run begins a line."""
    return np.asarray(buffer.touched / buffer.runs * np.ceil(buffer.runs / LINE))


def _used_again(nest: LoopNest, buffer: _Buffer, loop: int) -> bool:
    """True if the next outer loop of more than one iteration touches no additional bytes."""
    outside = np.flatnonzero(nest.extents[loop + 1 :] > 1)
    return bool(len(outside)) and bool(
        buffer.touched[loop + 1 + outside[0]] == buffer.touched[loop]
    )


def _writes_again(nest: LoopNest) -> np.ndarray:
    """For each loop, whether the block writes the same bytes in all of the loop's iterations.

    For the innermost loop this is a guess: True if it has more iterations than bytes.
    """
    written = [access.touched for access in nest.accesses if access.is_write]
    if not written:
        return np.zeros(len(nest.extents), dtype=bool)
    touched = np.max(written, axis=0)
    first = nest.extents[0] > touched[0]
    return np.concatenate([[first], touched[1:] == touched[:-1]])

# SPDX-License-Identifier: Apache-2.0
"""Loop nests as data. Imports no TVM."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Access:
    """A region of a buffer that a block reads or writes.

    - ``buffer``: the buffer's name.
    - ``is_write``: whether the block writes it.
    - ``touched``: the bytes that each loop and its inner loops touch, the innermost loop first, of
      shape ``(loops,)``. This is the "touched memory" of "Learning to Optimize Tensor Programs"
      (Chen et al., 2018).
    - ``runs``: the number of contiguous bytes among them, of the same shape.
    """

    buffer: str
    is_write: bool
    touched: np.ndarray
    runs: np.ndarray


@dataclass(frozen=True)
class LoopNest:
    """The loops around one innermost block.

    - ``extents``: the iterations of each loop, the innermost first, of shape ``(loops,)``; 1 if not
      constant.
    - ``kinds``: TVM's ``ForKind`` of each: 0 serial, 1 parallel, 2 vectorized, 3 unrolled, 4 bound
      to a thread.
    - ``unroll_limit``: the maximum number of steps that TVM may unroll; 0 for none.
    - ``accesses``: the writes of the block, then its reads.
    - ``loops``: the index of each loop in the module, the innermost first; nests may share outer
      loops.
    - ``operations``: the operations of one execution of the block; see ``loop_context.operations``.
    """

    extents: np.ndarray
    kinds: np.ndarray
    unroll_limit: int
    accesses: tuple[Access, ...]
    loops: tuple[int, ...]
    operations: np.ndarray

    @property
    def iterations(self) -> np.ndarray:
        """Executions of the block in one run of each loop, of shape ``(loops,)``."""
        return np.cumprod(self.extents, dtype=float)

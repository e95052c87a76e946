# SPDX-License-Identifier: Apache-2.0
"""The loop nests of a key."""

from dataclasses import dataclass

import numpy as np

from .extents import Node, Tape


@dataclass(frozen=True)
class NestAccess:
    """A region of a buffer that a block reads or writes.

    - ``buffer``: the buffer's name.
    - ``is_write``: whether the block writes it.
    - ``itemsize``: the bytes of an element.
    - ``touched``, ``runs``: the bytes that each loop with the loops within it touches, and how many
      contiguous bytes among them, the innermost loop first; see ``loop_context.Access``.
    - ``strides``: the elements that one step of each loop moves along the buffer, the innermost
      loop first; 0 where the region does not depend on it.
    """

    buffer: str
    is_write: bool
    itemsize: int
    touched: tuple[Node, ...]
    runs: tuple[Node, ...]
    strides: tuple[Node, ...]


@dataclass(frozen=True)
class Nest:
    """The loops around one block that has no block within it.

    - ``block``: the block's name.
    - ``loops``: the number of each loop in the module, the innermost first: nests may share outer
      loops.
    - ``extents``: the iterations of each.
    - ``reduces``: whether each runs over an axis that is reduced.
    - ``single``: whether the body of each is one statement.
    - ``operations``: the operations of one execution of the block; see ``operations.operations``.
    - ``accesses``: the writes of the block, then its reads.
    """

    block: str
    loops: tuple[int, ...]
    extents: tuple[Node, ...]
    reduces: tuple[bool, ...]
    single: tuple[bool, ...]
    operations: np.ndarray
    accesses: tuple[NestAccess, ...]


@dataclass(frozen=True)
class Skeleton:
    """The loop nests of a key.

    ``tape``: evaluates the nodes of the nests for points of the key's sketch. ``nests``: in the
    order of the module.
    """

    tape: Tape
    nests: tuple[Nest, ...]

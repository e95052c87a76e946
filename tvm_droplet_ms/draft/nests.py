# SPDX-License-Identifier: Apache-2.0
"""The loop nests of a key."""

from dataclasses import dataclass

import numpy as np

from .extents import Node, Tape


@dataclass(frozen=True)
class NestAccess:
    """A region of a buffer that a block reads or writes.

    Parameters
    ----------
    buffer : str
        The buffer's name.
    is_write : bool
        Whether the block writes it.
    itemsize : int
        The bytes of an element.
    touched, runs : tuple[Node, ...]
        The bytes that each loop with the loops within it touches, and how many contiguous bytes
        among them, the innermost loop first; see ``loop_context.Access``.
    strides : tuple[Node, ...]
        The elements that one step of each loop moves along the buffer, the innermost loop first; 0
        where the region does not depend on it.
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

    Parameters
    ----------
    block : str
        The block's name.
    loops : tuple[int, ...]
        The number of each loop in the module, the innermost first: nests may share outer loops.
    extents : tuple[Node, ...]
        The iterations of each.
    reduces : tuple[bool, ...]
        Whether each runs over an axis that is reduced.
    single : tuple[bool, ...]
        Whether the body of each is one statement.
    operations : np.ndarray
        The operations of one execution of the block; see ``operations.operations``.
    accesses : tuple[NestAccess, ...]
        The writes of the block, then its reads.
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

    Parameters
    ----------
    tape : Tape
        Evaluates the nodes of the nests for points of the key's sketch.
    nests : tuple[Nest, ...]
        In the order of the module.
    """

    tape: Tape
    nests: tuple[Nest, ...]

# SPDX-License-Identifier: Apache-2.0
"""Packs weights of 2, 4 or 8 bits into 32-bit words, in panels of one vector. Imports no TVM.

A block consists of rows of a column that share a scale and a zero point. A word holds consecutive
rows, four at a time: one row in each byte, the first in the lowest byte. The next four rows are in
the next bits of each byte. So a shift and a mask extract the numbers of four rows as bytes.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LANES = 16
"""Number of columns in a panel."""

WORD, TOGETHER = 32, 4
"""Number of bits in a word, and number of its bytes, which hold adjacent rows."""

_SMALLEST_BLOCK = 16


@dataclass(frozen=True)
class Scaled:
    """A matrix ``(numbers - zeros) * scales``; all three have the shape (rows, columns)."""

    numbers: Array
    zeros: Array
    scales: Array


@dataclass(frozen=True)
class Packed:
    """A packed matrix.

    - ``words``: int32 of shape (panels, blocks, words of a block, LANES).
    - ``scales``, ``zeros``: float32 of shape (panels, blocks, LANES); both are 0 in padded columns.
    - ``bits``: the bits of a number. ``block``: the rows of a block.
    """

    words: Array
    scales: Array
    zeros: Array
    bits: int
    block: int


def pack(matrix: Scaled, block: int | None = None) -> Packed | None:
    """Pack a matrix; return None if no blocks of rows share scales, or the integers are too wide.

    ``block``: the rows of a block; None for the largest block that shares scales and zeros.
    """
    found = _unsigned(matrix.numbers)
    if found is None:
        return None
    numbers, shift, bits = found
    rows, columns = numbers.shape
    zeros = matrix.zeros.astype("float32") + np.float32(shift)
    found_block = _block_rows(rows, WORD // bits, zeros, matrix.scales)
    if found_block is None or (block and (found_block % block or block % (WORD // bits))):
        return None
    block = block or found_block
    scales = matrix.scales[::block].astype("float32")
    zeros = zeros[::block]
    panels, per_word = -(-columns // LANES), WORD // bits
    more = [(0, 0), (0, panels * LANES - columns)]
    scales, zeros = (
        np.ascontiguousarray(np.pad(each, more).reshape(-1, panels, LANES).transpose(1, 0, 2))
        for each in (scales, zeros)
    )
    apart = np.pad(numbers, more).astype("uint32")
    apart = apart.reshape(rows // block, block // per_word, per_word, panels, LANES)
    places = [place_of(number, bits) for number in range(per_word)]
    shifts = np.array(places, "uint32").reshape(-1, 1, 1)
    words = np.bitwise_or.reduce(apart << shifts, axis=2).transpose(2, 0, 1, 3)
    words = np.ascontiguousarray(words).view("int32")
    return Packed(words, scales, zeros, bits, block)


def place_of(number: int, bits: int) -> int:
    """Return the lowest bit of a number in a word; numbers are counted by row."""
    group, byte = divmod(number, TOGETHER)
    return 8 * byte + bits * group


def _unsigned(numbers: Array) -> tuple[Array, int, int] | None:
    """Return the integers as unsigned ones of 2, 4 or 8 bits, the added offset, and the bits."""
    low, high = int(numbers.min()), int(numbers.max())
    for bits in (2, 4, 8):
        for shift in (0, 1 << (bits - 1)):
            if low + shift >= 0 and high + shift < 1 << bits:
                return numbers.astype("int32") + shift, shift, bits
    return None


def _block_rows(rows: int, per_word: int, *tables: Array) -> int | None:
    """Return the largest block of rows that shares the tables' values and fills whole words."""
    largest = [rows] if rows % per_word == 0 else []
    powers = [1 << n for n in range(rows.bit_length(), 3, -1)]
    for block in (*largest, *powers):
        if block < max(_SMALLEST_BLOCK, per_word) or rows % block or block % per_word:
            continue
        if all(_is_shared(table, block) for table in tables):
            return block
    return None


def _is_shared(table: Array, block: int) -> bool:
    blocks = table.reshape(-1, block, table.shape[1])
    return bool((blocks == blocks[:, :1]).all())

# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""The loops around each block of a scheduled module, as numbers."""

from collections.abc import Iterator
from math import log2
from typing import Any

import numpy as np

from tvm import s_tir, tirx
from tvm.ir import IRModule

BLOCKS = 6
"""How many blocks, in the order of the module; those beyond are left out."""

LOOPS = 20
"""How many loops of each, the innermost first; those beyond are left out."""

_UNROLL = "pragma_auto_unroll_max_step"


def loop_nest_features(mod: IRModule) -> np.ndarray:
    """How the loops around each innermost block are tiled, which features of its stores blur.

    Of a block: for each loop, from the innermost outwards, the logarithm to base 2 of its extent,
    that of the product of the extents so far, and its kind (0 serial, 1 parallel, 2 vectorized, 3
    unrolled); then the limit to which its loops are unrolled, and their number.

    Parameters
    ----------
    mod : IRModule
        A scheduled module whose one function is ``main``.

    Returns
    -------
    features : np.ndarray
        Of shape ``(BLOCKS * (3 * LOOPS + 2),)``, float32; zeros where there is nothing.
    """
    features = np.zeros((BLOCKS, 3 * LOOPS + 2), dtype=np.float32)
    for row, loops in zip(features, _nests(mod["main"].body, ()), strict=False):
        within = 0.0
        for place, loop in enumerate(reversed(loops[-LOOPS:])):
            extent = log2(_extent(loop))
            within += extent
            row[3 * place : 3 * place + 3] = extent, within, int(loop.kind)
        limits = [int(loop.annotations[_UNROLL]) for loop in loops if _UNROLL in loop.annotations]
        row[-2:] = max(limits, default=0), len(loops)
    return features.ravel()


def _nests(stmt: Any, loops: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The loops around each block that has no block within it, outermost first."""
    if isinstance(stmt, s_tir.SBlockRealize):
        within = list(_nests(stmt.block.body, loops))
        yield from within or [loops]
    elif isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            yield from _nests(part, loops)
    elif isinstance(stmt, tirx.For):
        yield from _nests(stmt.body, (*loops, stmt))


def _extent(loop: Any) -> int:
    """The extent of a loop; 1 where it is not a constant."""
    extent = loop.extent
    return max(1, int(extent)) if isinstance(extent, int | tirx.IntImm) else 1

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
"""What a block computes, counted."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tvm import tirx
from tvm.ir import Call

KINDS: dict[str, tuple[type, ...]] = {
    "additions": (tirx.Add, tirx.Sub),
    "multiplications": (tirx.Mul,),
    "divisions": (tirx.Div, tirx.Mod, tirx.FloorDiv, tirx.FloorMod),
    "choices": (tirx.Min, tirx.Max, tirx.Select),
    "calls": (Call,),
}
"""The kinds of operations, in the order in which they are counted."""

_PARTS = (
    *("a", "b", "value", "condition", "true_value", "false_value"),
    *("body", "block", "then_case", "else_case"),
)


def operations(stmt: Any) -> np.ndarray:
    """How many operations of each kind one run of a statement has.

    Indices are not counted, nor how often a loop within the statement turns.

    Parameters
    ----------
    stmt : tirx.Stmt
        The body of a block.

    Returns
    -------
    counts : np.ndarray
        Additions, multiplications, divisions, choices (minimum, maximum, select) and calls, of
        shape ``(len(KINDS),)``, float64.
    """
    counts = np.zeros(len(KINDS))
    for node in _nodes(stmt):
        for place, kinds in enumerate(KINDS.values()):
            counts[place] += isinstance(node, kinds)
    return counts


def _nodes(node: Any) -> Iterator[Any]:
    """The statements and expressions within; the indices of a load are none of its parts here."""
    yield node
    if isinstance(node, tirx.SeqStmt | Call):
        parts = list(node.seq if isinstance(node, tirx.SeqStmt) else node.args)
    else:
        parts = [getattr(node, name) for name in _PARTS if hasattr(node, name)]
    for part in parts:
        yield from _nodes(part)

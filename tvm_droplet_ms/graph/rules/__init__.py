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
"""Rules: what may be called equal to what. Imports no TVM."""

from .fold import FOLD
from .fold_layers import FOLD_LAYERS
from .linear import LINEAR
from .linear_pools import LINEAR_POOLS
from .merge import MERGE
from .move import MOVE
from .move_layers import MOVE_LAYERS
from .move_slices import MOVE_SLICES
from .rule import Rule
from .subsample import SUBSAMPLE

ALL_RULES: tuple[Rule, ...] = (
    *FOLD,
    *FOLD_LAYERS,
    *LINEAR,
    *LINEAR_POOLS,
    *SUBSAMPLE,
    *MERGE,
    *MOVE,
    *MOVE_SLICES,
    *MOVE_LAYERS,
)
"""All rules, by family."""

FAMILIES = ("fold", "linear", "subsample", "merge", "move")


def rules_of(*families: str) -> tuple[Rule, ...]:
    """The rules of some families.

    Parameters
    ----------
    *families : str
        Names of families, of ``FAMILIES``.

    Raises
    ------
    ValueError
        If there is no such family.
    """
    for family in families:
        if family not in FAMILIES:
            raise ValueError(f"{family!r} is no family of rules, expected some of {FAMILIES}")
    return tuple(rule for rule in ALL_RULES if rule.family in families)


__all__ = ["ALL_RULES", "FAMILIES", "Rule", "rules_of"]

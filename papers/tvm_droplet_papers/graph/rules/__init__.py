# SPDX-License-Identifier: Apache-2.0
"""Rewrite rules for e-graphs. Imports no TVM."""

from .fold import FOLD
from .fold_layers import FOLD_LAYERS
from .linear import LINEAR
from .merge import MERGE
from .move import MOVE
from .move_layers import MOVE_LAYERS
from .rule import Rule
from .subsample import SUBSAMPLE

ALL_RULES: tuple[Rule, ...] = (
    *FOLD,
    *FOLD_LAYERS,
    *LINEAR,
    *SUBSAMPLE,
    *MERGE,
    *MOVE,
    *MOVE_LAYERS,
)
"""All rules, by family."""

FAMILIES = ("fold", "linear", "subsample", "merge", "move")


def rules_of(*families: str) -> tuple[Rule, ...]:
    """The rules of some families.

    Parameters
    ----------
    *families : str
        Names from ``FAMILIES``.

    Raises
    ------
    ValueError
        If a family does not exist.
    """
    for family in families:
        if family not in FAMILIES:
            raise ValueError(f"{family!r} is no family of rules, expected some of {FAMILIES}")
    return tuple(rule for rule in ALL_RULES if rule.family in families)


__all__ = ["ALL_RULES", "FAMILIES", "Rule", "rules_of"]

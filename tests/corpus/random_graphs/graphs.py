# SPDX-License-Identifier: Apache-2.0
"""Whole random graphs."""

from __future__ import annotations

from functools import partial

import onnx

from .elementwise import ELEMENTWISE
from .language import LANGUAGE
from .layers import LAYERS
from .maker import GraphMaker
from .moves import MOVES
from .narrow import NARROW

FEWEST, MOST = 5, 12
"""Nodes of a graph."""

_ODD = (1, 2, 3, 5, 7, 8, 13)
_TRIES = 60


def model_of_seed(seed: int) -> onnx.ModelProto:
    """A graph of ``FEWEST`` to about ``MOST`` nodes, in float32, with static shapes."""
    make = GraphMaker(seed)
    for _ in range(make.integer(1, 2)):
        make.input(_shape(make))
    wanted = make.integer(FEWEST, MOST)
    for _ in range(_TRIES):
        if make.count >= wanted:
            break
        # Mostly the last value, so that graphs are deep, and what is left open is read later.
        x = make.values[-1] if make.chance(65) else make.pick(make.values)
        kinds = make.pick([LAYERS, LANGUAGE, LANGUAGE, NARROW, ELEMENTWISE, ELEMENTWISE, MOVES])
        if kinds is NARROW and make.chance(60):
            x = make.pick(make.inputs)
        make.attempt(partial(make.pick(kinds), make, x))
    return make.model()


def _shape(make: GraphMaker) -> tuple[int, ...]:
    rank = make.pick([4, 4, 3, 3, 2])
    if rank == 4:
        channels = make.pick([1, 2, 3, 4, 6, 8, 12, 16])
        return make.pick([1, 1, 2]), channels, make.pick(_ODD), make.pick(_ODD)
    return tuple(make.pick([*_ODD, 16, 24]) for _ in range(rank))

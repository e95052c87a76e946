# SPDX-License-Identifier: Apache-2.0
"""Whole random graphs: by choices, by a seed, and as a strategy of hypothesis."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import onnx

from .elementwise import ELEMENTWISE
from .layers import LAYERS
from .maker import Chooser, GraphMaker, RandomChooser
from .moves import MOVES

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

FEWEST, MOST = 5, 12
"""Nodes of a graph."""

_ODD = (1, 2, 3, 5, 7, 8, 13)
_TRIES = 60


def make_model(chooser: Chooser) -> onnx.ModelProto:
    """Make a graph of ``FEWEST`` to about ``MOST`` nodes.

    ``chooser``: makes all choices. In float32, with static shapes.
    """
    make = GraphMaker(chooser)
    for _ in range(make.integer(1, 2)):
        make.input(_shape(make))
    wanted = make.integer(FEWEST, MOST)
    for _ in range(_TRIES):
        if make.count >= wanted:
            break
        # Mostly the last value, so that graphs are deep, and what is left open is read later.
        x = make.values[-1] if make.chance(65) else make.pick(make.values)
        kinds = make.pick([LAYERS, LAYERS, ELEMENTWISE, ELEMENTWISE, MOVES])
        make.attempt(partial(make.pick(kinds), make, x))
    return make.model()


def _shape(make: GraphMaker) -> tuple[int, ...]:
    rank = make.pick([4, 4, 4, 3, 2])
    if rank == 4:
        channels = make.pick([1, 2, 3, 4, 6, 8, 12, 16])
        return make.pick([1, 1, 2]), channels, make.pick(_ODD), make.pick(_ODD)
    return tuple(make.pick([*_ODD, 16, 24]) for _ in range(rank))


def model_of_seed(seed: int) -> onnx.ModelProto:
    """The graph of a seed."""
    return make_model(RandomChooser(seed))


def models() -> SearchStrategy[onnx.ModelProto]:
    """Graphs as a strategy of hypothesis, which shrinks towards few small nodes."""
    from hypothesis import strategies as st

    class Drawing:
        def __init__(self, draw: Any) -> None:
            self._draw = draw

        def integer(self, low: int, high: int) -> int:
            return int(self._draw(st.integers(low, high)))

    @st.composite
    def drawn(draw: Any) -> onnx.ModelProto:
        return make_model(Drawing(draw))

    return drawn()

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
"""Coordinate descent by ask and tell: exploit as a raindrop."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from .neighbourhood import Direction, Neighbourhood, Point


class Tier(IntEnum):
    """Why a point is proposed, in the order in which a batch is filled."""

    FURTHER = 0
    """Further along the direction that has just improved."""
    JOINT = 1
    """A joint step of the directions that improved in the same batch."""
    ADJACENT = 2
    """A neighbour of the incumbent."""


@dataclass(frozen=True)
class Proposal:
    """A point worth evaluating.

    Parameters
    ----------
    point : Point
        Where to evaluate.
    directions : tuple[Direction, ...]
        The steps that lead there from the incumbent.
    tier : Tier
        Why it is proposed.
    """

    point: Point
    directions: tuple[Direction, ...]
    tier: Tier


class CoordinateDescent:
    """Best-improvement descent over the adjacent neighbourhood, with the paper's speculation.

    The caller evaluates proposals in batches of its own size, and alone decides what counts as an
    improvement. After each batch the incumbent moves to the best of the improvements; the
    directions that improved are followed further, and jointly, before the other neighbours
    ("Explore as a Storm, Exploit as a Raindrop", arXiv 2406.20037; the speculation is that of
    Droplet Search, ACM TACO 2024).

    Parameters
    ----------
    start : Point
        The first incumbent.
    neighbourhood : Neighbourhood
        The neighbourhood of the first incumbent.
    joint_steps : bool
        Whether the directions that improved in one batch are followed jointly.

    Attributes
    ----------
    incumbent : Point
        The best point so far.
    """

    FURTHER_STEPS = 2
    """How far a direction that improved is followed in one batch."""

    incumbent: Point

    def __init__(
        self, start: Point, neighbourhood: Neighbourhood, *, joint_steps: bool = True
    ) -> None:
        self.incumbent = start
        self._joint_steps = joint_steps
        self._neighbourhood = neighbourhood
        self._tried = {start}
        self._last: tuple[Direction, ...] = ()
        self._improved: tuple[Direction, ...] = ()

    def _further(self) -> Iterator[Proposal]:
        directions: tuple[Direction, ...] = ()
        for _ in range(self.FURTHER_STEPS if self._last else 0):
            directions += self._last
            point = self._neighbourhood.step(self.incumbent, *directions)
            if point is None:
                return
            yield Proposal(point, directions, Tier.FURTHER)

    def _joint(self) -> Iterator[Proposal]:
        joint: tuple[Direction, ...] = ()
        for direction in self._improved if self._joint_steps else ():
            for directions in ((direction,), (*joint, direction)):
                point = self._neighbourhood.step(self.incumbent, *directions)
                if point is not None:
                    yield Proposal(point, directions, Tier.JOINT)
            joint += (direction,)

    def _adjacent(self) -> Iterator[Proposal]:
        for direction in self._neighbourhood.directions(self.incumbent):
            point = self._neighbourhood.step(self.incumbent, direction)
            if point is not None:
                yield Proposal(point, (direction,), Tier.ADJACENT)

    def ask(self) -> list[Proposal]:
        """The points worth evaluating now, each once, in the order in which to fill a batch.

        Returns
        -------
        proposals : list[Proposal]
            None of them told yet; empty when the incumbent is a local optimum.
        """
        if self.converged:
            return []
        proposals: dict[Point, Proposal] = {}
        for source in (self._further(), self._joint(), self._adjacent()):
            for proposal in source:
                if proposal.point not in self._tried:
                    proposals.setdefault(proposal.point, proposal)
        return list(proposals.values())

    def reject(self, proposal: Proposal) -> None:
        """Tell that a proposal cannot be evaluated, or is no improvement."""
        self._tried.add(proposal.point)

    def accept(
        self,
        best: Proposal,
        improvements: Sequence[Proposal],
        realised: Point,
        neighbourhood: Neighbourhood,
    ) -> None:
        """Tell that a batch improved on the incumbent, which moves to the best of it.

        Parameters
        ----------
        best : Proposal
            The largest improvement.
        improvements : Sequence[Proposal]
            All proposals that improved, the best among them.
        realised : Point
            The point that was evaluated in the best's place: the new incumbent.
        neighbourhood : Neighbourhood
            Its neighbourhood.
        """
        self._tried.update(proposal.point for proposal in improvements)
        self._tried.add(realised)
        self.incumbent = realised
        self._neighbourhood = neighbourhood
        self._last = best.directions
        self._improved = tuple(
            proposal.directions[0]
            for proposal in improvements
            if proposal is not best and len(proposal.directions) == 1
        )

    @property
    def converged(self) -> bool:
        """Whether every neighbour of the incumbent was told, and none improved on it."""
        return all(proposal.point in self._tried for proposal in self._adjacent())

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
"""Settings of a tree search: those of the paper, and ours. Imports no TVM."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Settings:
    """Settings of a tree search. What differs from :data:`PAPER` was better on the toy.

    Attributes
    ----------
    simulations : int
        Simulations before each real step.
    rollout : int
        The most random actions of a simulation.
    discount : float
        What a reward is multiplied with for each step that it is away.
    exploration : float
        The constant of UCT, before the root of twice the logarithm.
    expand : float
        The probability of a new child where one may be had.
    real_steps : int
        The most real steps.
    relative : bool
        Rewards relative to the largest gain that was found. False: as they are, as in the paper.
    best_share : float
        The share of the best return, beside the mean, in the value of a child.
    transpositions : bool
        Equal states are one node of the tree.
    keep_tree : bool
        The tree is kept between real steps.
    widening : bool
        A node has at most as many children as the root of its visits, those first whose rule
        gained the most when it was last applied.
    price_last : bool
        A simulation is priced at its end only. Costs never rise, so its last state is its best one.
    rounds : bool
        A roll-out applies all actions in a random order, round by round, until none changes
        anything. The first one of a search has them in their order, as saturation does. False: up
        to `rollout` random actions.
    parts : bool
        At times all actions are applied to one part of the first state after the other, until
        nothing fits.
    strike : bool
        A roll-out does not try again what changed nothing or was not allowed.
    prune : bool
        What was searched to its end is left out.
    all_as_first : bool
        Widening prefers the rules with the best mean gain over all simulations that had them
        anywhere: rules commute. False: those that gained the most when they were last applied.
    """

    simulations: int = 16
    rollout: int = 11
    discount: float = 0.99
    exploration: float = 0.3
    expand: float = 0.5
    real_steps: int = 200
    relative: bool = True
    best_share: float = 0.0
    transpositions: bool = True
    keep_tree: bool = True
    widening: bool = True
    price_last: bool = True
    rounds: bool = True
    parts: bool = True
    strike: bool = True
    prune: bool = True
    all_as_first: bool = True


SWITCHES = tuple(field.name for field in fields(Settings) if isinstance(field.default, bool))
"""The differences from the published search that are on or off."""

PAPER = Settings(
    simulations=128,
    exploration=2.0,
    relative=False,
    best_share=0.0,
    transpositions=False,
    keep_tree=False,
    widening=False,
    price_last=False,
    rounds=False,
    parts=False,
    strike=False,
    prune=False,
    all_as_first=False,
)
"""The search as published."""

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
"""Simulated annealing of many chains at once. Imports no TVM."""

import math
import random
from collections.abc import Callable, Sequence
from typing import TypeVar

State = TypeVar("State")


def anneal(
    chains: Sequence[State],
    scores: Sequence[float],
    mutate: Callable[[State], State | None],
    score: Callable[[Sequence[State]], Sequence[float]],
    *,
    steps: int,
    generator: random.Random,
) -> list[State]:
    """Walk each chain towards higher scores, downhill too while it is hot.

    The explorer of "Learning to Optimize Tensor Programs" (Chen et al., 2018, section 3.3), with
    the cooling and the acceptance of TVM's ``sa_model_optimizer.py``, which 0.14 was the last to
    have: the temperature falls from 1 to 0 in equal steps, and a chain moves with probability
    exp(min((new - old) / (temperature + 1e-5), 0)).

    Parameters
    ----------
    chains : Sequence[State]
        Where the chains are.
    scores : Sequence[float]
        The score of each.
    mutate : Callable[[State], State | None]
        Another state near one; None where there is none, and the chain stays.
    score : Callable[[Sequence[State]], Sequence[float]]
        Scores states, the higher the better; it is asked about the moves of all chains at once.
    steps : int
        How many moves each chain tries.
    generator : random.Random
        Makes all choices.

    Returns
    -------
    chains : list[State]
        Where the chains have come.
    """
    states, heights = list(chains), list(scores)
    for step in range(steps):
        temperature = 1.0 - step / steps
        moved = [(place, mutate(state)) for place, state in enumerate(states)]
        moves = [(place, state) for place, state in moved if state is not None]
        if not moves:
            break
        for (place, state), height in zip(moves, score([state for _, state in moves]), strict=True):
            gain = (height - heights[place]) / (temperature + 1e-5)
            if generator.random() < math.exp(min(gain, 0.0)):
                states[place], heights[place] = state, height
    return states

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
"""Times programs in rounds, slow ones in a few of them."""

from collections.abc import Callable, Mapping

SLOW_SECS = 1.0
"""A program that takes longer is slow."""

SLOW_TOTAL_SECS = 30.0
"""The seconds that a slow program may take in all rounds together."""

FEWEST = 3
"""Rounds of the slowest program: the fewest that have quartiles."""


def time_in_rounds(
    timers: Mapping[str, Callable[[], float]], rounds: int
) -> dict[str, list[float]]:
    """Time every program once a round, and slow ones in the first rounds only.

    A model whose kernels are naive loops takes up to a minute. What a program does only once, such
    as compiling itself, has to be done before.

    Parameters
    ----------
    timers : Mapping[str, Callable[[], float]]
        By name: runs the program once and returns its seconds. Each is called before, which tells
        whether it is slow, and once more to warm up if it is not.
    rounds : int
        The number of rounds.

    Returns
    -------
    secs : dict[str, list[float]]
        By name: the seconds of its rounds. The same position is the same round.
    """
    limits = {}
    for name, timer in timers.items():
        first = timer()
        limits[name] = _rounds_of(first, rounds)
        if first <= SLOW_SECS:
            timer()
    secs: dict[str, list[float]] = {name: [] for name in timers}
    for number in range(rounds):
        for name, timer in timers.items():
            if number < limits[name]:
                secs[name].append(timer())
    return secs


def _rounds_of(secs: float, rounds: int) -> int:
    if secs <= SLOW_SECS:
        return rounds
    return min(rounds, max(FEWEST, int(SLOW_TOTAL_SECS / secs)))

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
"""Times several programs in alternation, so that other load affects all of them alike."""

from collections.abc import Callable, Mapping

Timer = Callable[[], float]


def time_in_alternation(timers: Mapping[str, Timer], rounds: int) -> dict[str, list[float]]:
    """Time every program once a round.

    Parameters
    ----------
    timers : Mapping[str, Callable[[], float]]
        By name: runs the program once and returns its seconds. Each is called twice before, to warm
        up.
    rounds : int
        The number of rounds.

    Returns
    -------
    secs : dict[str, list[float]]
        By name: the seconds of each round. The same position is the same round.
    """
    secs: dict[str, list[float]] = {name: [] for name in timers}
    for timer in timers.values():
        timer()
        timer()
    for _ in range(rounds):
        for name, timer in timers.items():
            secs[name].append(timer())
    return secs

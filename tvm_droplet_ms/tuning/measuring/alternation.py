# SPDX-License-Identifier: Apache-2.0
"""Times several programs in alternation, so that other load affects all of them alike."""

from collections.abc import Callable, Mapping

Timer = Callable[[], float]


def time_in_alternation(timers: Mapping[str, Timer], rounds: int) -> dict[str, list[float]]:
    """Time every program once a round.

    ``timers``: by name: runs the program once and returns its seconds. Each is called twice before,
    to warm up. ``rounds``: the number of rounds. Returns the seconds of each round, by name. The
    same position is the same round.
    """
    secs: dict[str, list[float]] = {name: [] for name in timers}
    for timer in timers.values():
        timer()
        timer()
    for _ in range(rounds):
        for name, timer in timers.items():
            secs[name].append(timer())
    return secs

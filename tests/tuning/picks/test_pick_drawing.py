# SPDX-License-Identifier: Apache-2.0
"""Random schedules are drawn until a time is over, with a made-up clock."""

import math
from types import SimpleNamespace

import pytest

from tvm_droplet_ms.tuning.picks import pick_sampling
from tvm_droplet_ms.tuning.picks.pick_sampling import DRAWN_AT_ONCE


class Sampling:
    """Draws schedules in turn from a small space; a draw takes a second."""

    def __init__(self, size):
        self.size, self.asked, self.now = size, [], 0.0

    def ask(self, count):
        first = sum(self.asked)
        self.asked.append(count)
        self.now += 1.0
        modules = {(first + place) % self.size for place in range(count)}
        return [SimpleNamespace(module=module) for module in sorted(modules)]


@pytest.mark.parametrize(
    ("secs", "asked"),
    [
        (math.inf, [50]),
        (9.0, [DRAWN_AT_ONCE] * 3 + [50 - 3 * DRAWN_AT_ONCE]),
        (1.5, [DRAWN_AT_ONCE] * 2),
        # There is time for at least one draw.
        (0.0, [DRAWN_AT_ONCE]),
    ],
)
def test_schedules_are_drawn_until_the_time_is_over(secs, asked, monkeypatch):
    sampling = Sampling(1000)
    monkeypatch.setattr(pick_sampling.time, "process_time", lambda: sampling.now)
    found = pick_sampling._draw(sampling, 50, secs)
    assert sampling.asked == asked
    assert [each.module for each in found] == list(range(sum(asked)))


def test_schedules_of_a_small_space_are_drawn_once(monkeypatch):
    sampling = Sampling(DRAWN_AT_ONCE + 4)
    monkeypatch.setattr(pick_sampling.time, "process_time", lambda: 0.0)
    found = pick_sampling._draw(sampling, 64, 9.0)
    assert sorted(each.module for each in found) == list(range(DRAWN_AT_ONCE + 4))
    assert len(sampling.asked) == 3
    assert pick_sampling._draw(sampling, 0, math.inf) == []

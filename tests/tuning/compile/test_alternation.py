# SPDX-License-Identifier: Apache-2.0
"""Programs that are timed in turns."""

from tvm_droplet_ms.measure import turns
from tvm_droplet_ms.measure.turns import time_in_alternation


def test_a_turn_after_a_rest_counts_its_last_call(monkeypatch):
    monkeypatch.setattr(turns, "REST_SECS", 0.0)
    monkeypatch.setattr(turns, "WARM_SECS", 0.001)
    calls = {"ours": 0, "theirs": 0}

    def timer(name):
        def call():
            calls[name] += 1
            return float(calls[name])

        return call

    secs = time_in_alternation({name: timer(name) for name in calls}, 3, rests=True)
    for name, counts in secs.items():
        assert len(counts) == 3
        # Two calls to warm up, and at least one more before each that counts.
        assert counts[0] >= 4 and counts[1] >= counts[0] + 2
        assert counts[-1] == calls[name]


def test_without_rests_all_calls_but_the_first_two_count():
    calls = iter(range(1, 10))
    assert time_in_alternation({"ours": lambda: float(next(calls))}, 3) == {"ours": [3.0, 4.0, 5.0]}

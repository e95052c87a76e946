# SPDX-License-Identifier: Apache-2.0
"""Features are computed once for each program, and are those of the extractor."""

import numpy as np
from tasks import Task

from tvm_droplet_ms.cost_model.features import program_features as cached_features
from tvm_droplet_ms.cost_model.features.program_features import CachedFeatures, ProgramFeatures


class Counting(ProgramFeatures):
    """Counts the programs whose features it computes."""

    computed = 0

    def extract(self, context, candidates):
        self.computed += len(candidates)
        return super().extract(context, candidates)


def test_known_programs_are_not_lowered_again():
    """In any order, repeated within a call or between two."""
    task, counting = Task(16, 16, 16, count=20), Counting()
    cached, expected = CachedFeatures(counting), ProgramFeatures()
    first, second = task.candidates[:5], [*task.candidates[7:1:-1], task.candidates[2]]
    for candidates, computed in ((first, 5), (second, 8), ([], 8), (first, 8)):
        found = cached.extract(task.context, candidates)
        np.testing.assert_array_equal(found, expected.extract(task.context, candidates))
        assert counting.computed == computed


def test_programs_asked_for_longest_ago_are_dropped(monkeypatch):
    monkeypatch.setattr(cached_features, "_KEPT", 3)
    task, counting = Task(16, 16, 16, count=20), Counting()
    cached = CachedFeatures(counting)
    for begin, computed in ((0, 1), (1, 2), (2, 3), (0, 3), (3, 4), (0, 4), (1, 5)):
        cached.extract(task.context, task.candidates[begin : begin + 1])
        assert counting.computed == computed

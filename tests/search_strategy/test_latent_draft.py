# SPDX-License-Identifier: Apache-2.0
"""Drafted points, against all points of a small space."""

import random

import numpy as np
import pytest
from conformance.workloads import make_context, tile_all

from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.search_strategy import drafting as latent_draft
from tvm_droplet_ms.search_strategy.design_spaces import EncodedSpaces
from tvm_droplet_ms.search_strategy.drafting import LatentDraft


@pytest.fixture(scope="module")
def spaces():
    context = make_context(ms.search_strategy.ReplayTrace(), space=tile_all)
    return EncodedSpaces([schedule.trace for schedule in context.generate_design_space()])


def every_point(spaces):
    """The product of the values of all tiles."""
    space = spaces.latent_space(0, [])
    rows = [np.empty((1, 0), dtype=int)]
    for axis in space.axes:
        rows = [np.hstack([row, own[None]]) for row in rows for own in axis.values]
    return np.vstack(rows)


def score(_sketch, decisions):
    """Small tiles at even places, and a different number for every point."""
    weights = np.where(np.arange(decisions.shape[1]) % 2 == 0, -1.0, 0.3)
    return np.log2(decisions) @ (weights * (1.0 + 0.01 * np.sqrt(np.arange(len(weights)))))


def test_a_large_draft_finds_the_best_of_all(spaces, monkeypatch):
    everything = every_point(spaces)
    monkeypatch.setattr(latent_draft, "DRAFT_POINTS", 30 * len(everything))
    order = np.argsort(-score(0, everything))[:5]
    found = LatentDraft(spaces, random.Random(0)).best([], [], score, 5)
    assert found == [(0, tuple(everything[row].tolist())) for row in order]


def test_good_parents_make_better_points(spaces, monkeypatch):
    monkeypatch.setattr(latent_draft, "DRAFT_POINTS", 90)
    everything = every_point(spaces)
    good = everything[np.argsort(-score(0, everything))[40:50]]
    parents = [(0, tuple(row)) for row in good.tolist()]

    def mean_of_best(parents, seed):
        found = LatentDraft(spaces, random.Random(seed)).best([], parents, score, 10)
        assert len(set(found)) == 10
        return np.mean([score(0, np.array([decisions]))[0] for _, decisions in found])

    for seed in range(3):
        assert mean_of_best(parents, seed) > mean_of_best([], seed)

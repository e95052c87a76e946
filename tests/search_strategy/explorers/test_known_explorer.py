# SPDX-License-Identifier: Apache-2.0
"""The best schedules of known kernels are explored first."""

import pytest
from conformance.driving import drive
from conformance.objectives import bowl, timed
from conformance.strategies import make_droplet
from conformance.workloads import make_context, matmul

from tvm import IRModule, te
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.search_strategy import KnownExplorer
from tvm_droplet_ms.search_strategy.design_spaces import EncodedSpaces
from tvm_droplet_ms.search_strategy.known_schedules import (
    TunedTask,
    find_schedules,
    nearest_points,
    write_schedules,
)


def known_tiles(*sizes):
    """Known kernels of ``tile_all``: products of matrices of a size, whose rows are in tiles."""
    kinds = ("SamplePerfectTile",) * 3
    return [
        TunedTask("elsewhere", kinds, ((n // 8, 1, 1, 8), (n // 4, 1, 1, 4), (n // 2, 2)))
        for n in sizes
    ]


@pytest.fixture
def file(tmp_path):
    write_schedules(tmp_path / "known.jsonl", known_tiles(32, 1024, 64, 16, 8192))
    return tmp_path / "known.jsonl"


def test_the_three_nearest_come_first_refitted(file):
    strategy = make_droplet(explorer=KnownExplorer(file), explore_trials=6)
    driven = drive(make_context(strategy, matmul(32, 32, 64)), timed(bowl), max_trials=20)
    first = [trial.decisions for trial in driven.batches[0]]
    assert len(first) == 6 and len(driven.trials) == 20
    # Of 32: its own tiles, the reduction of 64 in pairs. Those of 64 and 16 have the same tiles
    # inside, and so become the same schedule; so does that of 1024.
    assert first[0] == ((4, 1, 1, 8), (8, 1, 1, 4), (32, 2))
    assert first.count(first[0]) == 1


def test_what_the_package_knows_comes_first_by_default():
    mod = IRModule({"main": te.create_prim_func(te_workload.matmul(128, 256, 256))})
    context = ms.TuneContext(
        mod,
        target=Target({"kind": "llvm", "num-cores": 1}),
        space_generator="post-order-apply",
        search_strategy=DropletStrategy(prior=None, draft=None),
        rand_state=1,
    )
    spaces = EncodedSpaces([schedule.trace for schedule in context.generate_design_space()])
    nearest = nearest_points(find_schedules("auto", context.target), spaces, 3)
    driven = drive(context, timed(lambda _: 1.0), max_trials=8, num_trials_per_iter=8)
    measured = [spaces.find(trial.trace) for trial in driven.batches[0]]
    assert len(nearest) == 3 and measured[:3] == nearest


def test_nothing_known_is_random(file):
    runs = [
        drive(make_context(make_droplet(explorer=explorer)), timed(bowl)).modules
        for explorer in (KnownExplorer(None), "random")
    ]
    assert runs[0] == runs[1]


def test_a_missing_file_is_named():
    with pytest.raises(ValueError, match="known is 'nowhere.jsonl', and there is no such file"):
        KnownExplorer("nowhere.jsonl")

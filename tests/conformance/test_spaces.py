# SPDX-License-Identifier: Apache-2.0
"""Spaces that are empty, small, exhausted, rejected, or of awkward extents."""

import math

import pytest

from tvm.ir.utils import derived_object
from tvm.s_tir import Trace
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.search_strategy import EvolutionaryExplorer, RandomExplorer
from tvm_droplet_ms.search_strategy.explorers.seeded import SeededExplorer

from .driving import drive
from .objectives import bowl, constant, decisions_of, rugged, timed
from .strategies import SMALL_EVOLUTION, make_droplet, make_informed_droplet
from .watching import follow
from .workloads import (
    LLVM,
    Chance,
    Reject,
    decide_once,
    make_context,
    matmul,
    sample_nothing,
    tile_all,
    tile_and_annotate,
    tile_one,
    tile_two,
)


@pytest.mark.parametrize("space", [sample_nothing, decide_once])
@pytest.mark.parametrize("cost", [constant, lambda _: math.nan], ids=["well", "fails"])
def test_space_of_one_point(case, space, cost):
    """Nothing to decide: the one module is measured, and that is all."""
    driven = drive(make_context(case.make(), space=space), timed(cost))
    assert driven.ended
    assert len(set(driven.modules)) == 1
    if "end an exhausted space" not in case.deviations:
        assert len(driven.trials) == 1


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize("cost", [bowl, rugged, constant])
def test_exhausted(case, cost, repeats):
    """The 25 modules of a small space are all measured, and then there is no more.

    No incumbent is measured again to learn the noise, where no repeats tell it.
    """
    case.must("end an exhausted space")
    case.must("spend its trials")
    context = make_context(case.make(), space=tile_two)
    driven = drive(context, timed(cost, repeats), max_trials=200, finish=False)
    assert driven.ended
    assert len(driven.trials) == len(set(driven.modules)) == 25
    for _ in range(3):
        assert context.search_strategy.generate_measure_candidates() is None


@pytest.mark.parametrize("seeds", [0, 3])
@pytest.mark.parametrize("modules", range(2, 8))
def test_few_modules_with_seeds_among_them(modules, seeds):
    """What the prior chooses from was drawn before the seeds were measured."""
    points = [(0, (2 ** (modules - 1 - inner), 2**inner)) for inner in range(min(seeds, modules))]
    explorer = SeededExplorer(lambda _: points, RandomExplorer(pool_size=48))
    strategy = make_informed_droplet(explorer=explorer, explore_trials=8)
    context = make_context(strategy, matmul(32, 2 ** (modules - 1), 32), tile_one)
    driven = drive(context, timed(bowl), max_trials=64, num_trials_per_iter=8)
    assert driven.ended
    assert len(driven.trials) == len(set(driven.modules)) == modules


@pytest.mark.parametrize(
    "options, said",
    [({"space": sample_nothing}, "nothing to search"), ({"postprocs": [Reject()]}, "PyPostproc")],
)
def test_what_leaves_nothing_to_search_is_logged(caplog, options, said):
    with follow(caplog) as followed:
        drive(make_context(make_droplet(), **options), timed(bowl))
    assert followed.says(said)


def test_all_candidates_are_rejected(case):
    driven = drive(make_context(case.make(), postprocs=[Reject()]), timed(bowl))
    assert driven.ended
    assert driven.trials == []


def is_narrow(sch) -> bool:
    return any(tile[-1] < 2 for tile in decisions_of(sch))


def test_some_candidates_are_rejected(case):
    driven = drive(make_context(case.make(), postprocs=[Reject(is_narrow)]), timed(bowl))
    assert driven.ended
    assert len(driven.trials) == 40
    assert all(min(tile[-1] for tile in trial.decisions) >= 2 for trial in driven.trials)


@pytest.mark.parametrize("extents", [(257, 1470, 1), (1470, 1, 257), (1, 1, 1), (1, 7, 2)])
def test_awkward_extents(case, extents):
    """Every tile multiplies to its extent, within its innermost factor's limit."""
    driven = drive(make_context(case.make(), matmul(*extents)), timed(bowl), max_trials=60)
    assert driven.ended
    assert driven.trials
    if max(extents) > 7:
        assert case.has_spent(len(driven.trials), 60)
    for trial in driven.trials:
        assert tuple(math.prod(tile) for tile in trial.decisions) == extents
        limits = (32, 32, 16)
        assert all(tile[-1] <= limit for tile, limit in zip(trial.decisions, limits))


def test_postprocessor_that_samples(case):
    context = make_context(case.make(), postprocs=[Chance()])
    driven = drive(context, timed(rugged, repeats=2), max_trials=60)
    assert case.has_spent(len(driven.trials), 60)
    if "measure once" not in case.deviations:
        assert not driven.repeated


def test_every_kind_of_decision(case):
    """Tiles, a category, a compute location and a parallel extent, under TVM's postprocessors."""
    context = make_context(
        case.make(),
        space=tile_and_annotate,
        postprocs=ms.postproc.Postproc.create("llvm"),
        mutators=ms.mutator.Mutator.create("llvm"),
    )
    driven = drive(context, timed(rugged, repeats=2), max_trials=60)
    assert case.has_spent(len(driven.trials), 60)
    if "measure once" not in case.deviations:
        assert not driven.repeated


@derived_object
class Resample(ms.mutator.PyMutator):
    """A mutator of the user's own: forget all decisions."""

    def __init__(self, seen: list[Trace]) -> None:
        super().__init__()
        self.seen = seen

    def _initialize_with_tune_context(self, context) -> None:
        pass

    def apply(self, trace: Trace, _) -> Trace:
        self.seen.append(trace)
        return Trace(trace.insts, {})

    def clone(self) -> ms.mutator.Mutator:
        return Resample(self.seen)


def test_users_mutator(case):
    case.must("mutate")
    seen: list[Trace] = []
    context = make_context(case.make(), mutators={Resample(seen): 1.0})
    assert len(drive(context, timed(bowl)).trials) == 40
    assert seen


def test_space_of_tvms_rules(case):
    """A design space that TVM makes by itself, with its postprocessors and mutators."""
    context = ms.TuneContext(
        matmul(64, 64, 64),
        target=LLVM,
        space_generator="post-order-apply",
        search_strategy=case.make(),
        rand_state=1,
        num_threads=1,
    )
    driven = drive(context, timed(rugged, repeats=2), max_trials=30)
    assert driven.ended
    assert len(driven.trials) == 30
    if "measure once" not in case.deviations:
        assert not driven.repeated


def test_two_design_spaces(case):
    """The sketches have different numbers of decisions; each sketch is measured."""

    def two(sch):
        other = sch.copy()
        tile_all(sch)
        tile_two(other)
        return [sch, other]

    context = make_context(case.make(), space=two)
    driven = drive(context, timed(bowl, repeats=2))
    assert {len(trial.decisions) for trial in driven.trials} == {2, 3}
    if "measure once" not in case.deviations:
        assert not driven.repeated


def test_options_of_evolution_reach_it():
    """No generations, no mutations."""
    seen: list[Trace] = []
    options = SMALL_EVOLUTION | {"genetic_num_iters": 0}
    strategy = make_droplet(explorer=EvolutionaryExplorer(**options))
    context = make_context(strategy, mutators={Resample(seen): 1.0})
    assert len(drive(context, timed(bowl)).trials) == 40
    assert not seen

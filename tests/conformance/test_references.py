# SPDX-License-Identifier: Apache-2.0
"""Nothing outlives its last reference: reference counting alone frees a run.

A cycle through a TVM object is never collected, so each would keep a whole run in memory.
"""

import gc
import weakref

import pytest

from tvm.s_tir import meta_schedule as ms

from .driving import FixedModel, drive
from .objectives import bowl, timed
from .workloads import Reject, make_context, tile_all


@pytest.fixture
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("finish", [True, False], ids=["finished", "abandoned"])
@pytest.mark.parametrize("max_batches", [0, 1, 4, 300], ids=lambda count: f"{count} batches")
@pytest.mark.usefixtures("without_collector")
def test_no_reference_cycle(case, finish, max_batches):
    """The design space's function lives as long as the context, a postprocessor's as the run."""

    def space(sch):
        tile_all(sch)

    def rejects(_):
        return False

    strategy = case.make()
    # TVM's own strategies have no Python side to refer to.
    instance = getattr(strategy, "_inst", None)
    freed = [weakref.ref(space), weakref.ref(rejects)]
    freed += [weakref.ref(instance)] if instance is not None else []
    context = make_context(strategy, space=space, postprocs=[Reject(rejects)])
    drive(
        context,
        timed(bowl),
        database=ms.database.MemoryDatabase(),
        max_batches=max_batches,
        finish=finish,
    )
    del space, rejects, strategy, instance, context
    assert [reference() for reference in freed] == [None] * len(freed)


@pytest.mark.usefixtures("without_collector")
def test_post_tuning_releases_the_run(case):
    """The context lives on, as TVM's scheduler keeps it; the cost model of its run does not."""
    context = make_context(case.make())
    model = FixedModel()
    instance = weakref.ref(model._inst)
    drive(context, timed(bowl), cost_model=model, database=ms.database.MemoryDatabase())
    del model
    assert instance() is None
    assert context.search_strategy is not None


@pytest.mark.usefixtures("without_collector")
def test_error_leaves_no_cycle(case):
    def space(sch):
        tile_all(sch)

    reference = weakref.ref(space)
    context = make_context(case.make(), space=space)
    drive(context, timed(bowl), max_batches=2)
    try:
        context.search_strategy.post_tuning()
    except Exception as error:
        assert error
    del space, context
    assert reference() is None

# SPDX-License-Identifier: Apache-2.0
"""Every kind of decision on a real trace: write and read round trip, and encoding columns."""

import numpy as np
import pytest

import tvm
from tvm import te
from tvm.s_tir import Schedule, Trace
from tvm.te import create_prim_func
from tvm_droplet_ms.search_strategy.published.decision_kinds import (
    CATEGORICAL,
    COMPUTE_LOCATION,
    DECISION_KINDS,
    PARALLEL,
    PARALLEL_EXTENT,
    PERFECT_TILE,
    TraceParts,
)
from tvm_droplet_ms.search_strategy.published.neighborhood import ChoiceAxis, OrderedAxis, TileAxis
from tvm_droplet_ms.search_strategy.surrogate.encoding import COLUMNS


def make_module():
    """``B = A * 2; C = B + 1`` on 32 x 8."""
    a = te.placeholder((32, 8), name="A")
    b = te.compute((32, 8), lambda i, j: a[i, j] * 2.0, name="B")
    c = te.compute((32, 8), lambda i, j: b[i, j] + 1.0, name="C")
    return tvm.IRModule({"main": create_prim_func([a, c])})


MODULE = make_module()


def make_trace():
    """One decision of each kind."""
    sch = Schedule(MODULE, seed=1, debug_mask="none")
    consumer, producer = sch.get_sblock("C"), sch.get_sblock("B")
    loop = sch.get_loops(consumer)[0]
    tile = sch.sample_perfect_tile(loop, 3, max_innermost_factor=16, decision=[32, 1, 1])
    sch.split(loop, tile)
    sch.annotate(sch.get_sblock("root"), PARALLEL, 64)
    choice = sch.sample_categorical([0, 16, 64], [1 / 3, 1 / 3, 1 / 3], decision=0)
    sch.annotate(sch.get_sblock("root"), "unroll", choice)
    sch.compute_at(producer, sch.sample_compute_location(producer, decision=-1))
    return sch.trace


def position_of(trace, kind):
    """The position of the decision of a kind."""
    (position,) = [
        position
        for position, inst in enumerate(trace.insts)
        if inst.kind.name == kind.name and kind.read(trace, inst) is not None
    ]
    return position


CHANGES = [
    (PERFECT_TILE, (32, 1, 1), (4, 4, 2)),
    (CATEGORICAL, (0,), (2,)),
    (COMPUTE_LOCATION, (-1,), (0,)),
    (PARALLEL_EXTENT, (64,), (8,)),
]


def name_of(value):
    return getattr(value, "name", None)


@pytest.mark.parametrize(("kind", "before", "after"), CHANGES, ids=name_of)
def test_kind_reads_back_what_it_writes(kind, before, after):
    """Also after TVM replays the trace, and no other instruction or decision changes."""
    trace = make_trace()
    position = position_of(trace, kind)
    inst = trace.insts[position]
    assert kind.read(trace, inst) == before
    parts = TraceParts(list(trace.insts), dict(trace.decisions.items()))
    kind.write(parts, position, after)
    written = Trace(*parts)
    assert kind.read(written, written.insts[position]) == after
    sch = Schedule(MODULE, debug_mask="none")
    written.apply_to_schedule(sch, remove_postproc=False)
    assert kind.read(sch.trace, sch.trace.insts[position]) == after
    for other, expected, _ in CHANGES:
        if other is not kind:
            assert other.read(written, written.insts[position_of(written, other)]) == expected
    changed = [
        place
        for place, (old, new) in enumerate(zip(trace.insts, parts.insts, strict=True))
        if not old.same_as(new)
    ]
    assert changed == ([position] if kind is PARALLEL_EXTENT else [])


def test_kinds_are_found_by_the_names_of_their_instructions():
    assert {name: kind.name for name, kind in DECISION_KINDS.items()} == {
        name: name
        for name in ("SamplePerfectTile", "SampleCategorical", "SampleComputeLocation", "Annotate")
    }


def test_other_annotation_is_not_a_decision():
    trace = make_trace()
    others = [
        inst
        for inst in trace.insts
        if inst.kind.name == "Annotate" and str(inst.attrs[0]) != PARALLEL
    ]
    assert others
    assert all(PARALLEL_EXTENT.read(trace, inst) is None for inst in others)


class Legal:
    """Legal values that are given."""

    def compute_locations(self):
        return (-2, -1, 1)

    def parallel_extents(self):
        return (1, 8, 64)


@pytest.mark.parametrize(
    ("kind", "length", "axis"),
    [
        (PERFECT_TILE, 3, TileAxis(5, 3, 16)),
        (CATEGORICAL, 1, OrderedAxis(5, (0, 1, 2))),
        (COMPUTE_LOCATION, 1, OrderedAxis(5, (-2, -1, 1))),
        (PARALLEL_EXTENT, 1, OrderedAxis(5, (1, 8, 64))),
    ],
    ids=name_of,
)
def test_axis_has_the_legal_values(kind, length, axis):
    trace = make_trace()
    assert kind.axis(5, length, trace.insts[position_of(trace, kind)], Legal()) == axis


def test_categorical_without_an_order_is_a_choice():
    sch = Schedule(MODULE, seed=1, debug_mask="none")
    sch.sample_categorical([4, 1, 16], [0.25, 0.5, 0.25])
    assert CATEGORICAL.axis(2, 1, sch.trace.insts[-1], Legal()) == ChoiceAxis(2, 3)


@pytest.mark.parametrize(
    ("kind", "values", "columns"),
    [
        # log2 of 2, 8, 4, and of the product of the inner two, 8 * 4.
        (PERFECT_TILE, [[2, 8, 4], [1, 1, 1]], [[1, 3, 2, 5], [0, 0, 0, 0]]),
        # Four positions have two products that are neither a factor nor the extent.
        (PERFECT_TILE, [[2, 4, 8, 16]], [[1, 2, 3, 4, 9, 7]]),
        (PERFECT_TILE, [[2, 8]], [[1, 3]]),
        (PERFECT_TILE, [[8]], [[3]]),
        (CATEGORICAL, [[3], [0]], np.eye(32)[[3, 0]]),
        (COMPUTE_LOCATION, [[-1], [4]], np.eye(32)[[31, 4]]),
        (PARALLEL_EXTENT, [[32], [1]], [[5], [0]]),
    ],
)
def test_columns_are_hand_worked(kind, values, columns):
    np.testing.assert_allclose(COLUMNS[kind.name].encode(np.array(values, dtype=float)), columns)

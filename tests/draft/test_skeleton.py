# SPDX-License-Identifier: Apache-2.0
"""The loop nests that follow from decisions: against those of replayed modules."""

import random

import numpy as np
import pytest

from tvm.s_tir import Schedule, Trace
from tvm.s_tir import meta_schedule as ms
from tvm_droplet_ms.bench.definition import find_definition
from tvm_droplet_ms.compat import fast_tune_contexts
from tvm_droplet_ms.cost_model.draft.block_tree import NotUnderstood
from tvm_droplet_ms.cost_model.draft.key_symbols import KeySymbols, key_of
from tvm_droplet_ms.cost_model.draft.skeleton import compile_skeleton
from tvm_droplet_ms.cost_model.features.loop_context import loop_nests
from tvm_droplet_ms.search_strategy.design_spaces import EncodedSpaces

WORKLOADS = [
    "whole_dense",
    "whole_conv2d_3x3",
    "whole_depthwise",
    "convolution_stem",
    "convolution_3d",
    "attention_scores",
    "dense_bias_relu",
    "conv2d_nchw",
]
DRAWS = 16


class Draws:
    """Schedules of a workload, drawn as TVM draws them."""

    def __init__(self, name):
        target = {"kind": "llvm", "mcpu": "znver4", "num-cores": 2}
        with fast_tune_contexts():
            self.context: ms.TuneContext = find_definition(name).context(target, "replay-trace")
        self.designs = [schedule.trace for schedule in self.context.generate_design_space()]
        self.spaces = EncodedSpaces(self.designs)

    def __iter__(self):
        generator = random.Random(0)
        for design in self.designs:
            for _ in range(DRAWS):
                schedule = self._new(generator.randint(1, 2**31 - 2))
                Trace(design.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
                sketch, point = self.spaces.find(schedule.trace)
                yield self.spaces.sketches[sketch], point, schedule

    def _new(self, seed=1):
        return Schedule(self.context.mod, seed=seed, debug_mask="none")

    def with_postprocessors(self, trace):
        """The schedule after its postprocessors; None where they reject it."""
        schedule = self._new()
        trace.apply_to_schedule(schedule, remove_postproc=True)
        schedule.enter_postproc()
        postprocs = self.context.space_generator.postprocs
        return schedule if all(post.apply(schedule) for post in postprocs) else None


@pytest.fixture(scope="module", params=WORKLOADS)
def draws(request):
    return Draws(request.param)


def test_nests_of_a_key_are_those_of_its_replays(draws):
    """A skeleton that is compiled from one schedule tells the nests of all others of its key."""
    skeletons = {}
    shared = 0
    for sketch, point, schedule in draws:
        key = (sketch.key, key_of(sketch, point))
        shared += key in skeletons
        if key not in skeletons:
            skeletons[key] = compile_skeleton(sketch, schedule)
        tape, nests = skeletons[key].tape, skeletons[key].nests
        values = tape.evaluate(np.array([point]), range(len(tape)))[:, 0]
        expected = loop_nests(schedule.mod)
        assert len(nests) == len(expected)
        for ours, theirs in zip(nests, expected, strict=True):
            assert ours.loops == theirs.loops
            np.testing.assert_array_equal(values[list(ours.extents)], theirs.extents)
            assert len(ours.accesses) == len(theirs.accesses)
            for access, other in zip(ours.accesses, theirs.accesses, strict=True):
                assert (access.buffer, access.is_write) == (other.buffer, other.is_write)
                np.testing.assert_array_equal(values[list(access.touched)], other.touched)
                np.testing.assert_array_equal(values[list(access.runs)], other.runs)
    assert shared > 0


VECTOR, PARALLEL = 2, 1


def test_annotations_are_those_of_the_postprocessors(draws):
    of_keys = {}
    compared = 0
    for sketch, point, schedule in draws:
        replayed = draws.with_postprocessors(schedule.trace)
        if replayed is None:
            continue
        key = (sketch.key, key_of(sketch, point))
        if key not in of_keys:
            of_keys[key] = KeySymbols(sketch, schedule)
        symbols = of_keys[key].of(np.array([point]))[0]
        assert np.isfinite(symbols).all()
        nests = [nest for nest in loop_nests(replayed.mod) if len(nest.extents)]
        work = [nest.iterations[-1] * max(nest.operations.sum(), 1.0) for nest in nests]
        nest = nests[int(np.argmax(work))]
        kinds = [np.prod(nest.extents[nest.kinds == kind]) for kind in (VECTOR, PARALLEL)]
        np.testing.assert_allclose(2.0 ** symbols[:2], kinds, rtol=1e-5)
        compared += 1
    assert compared > 0


def test_what_is_not_understood_is_named():
    draws = Draws("whole_softmax")
    reasons = set()
    for sketch, _, schedule in draws:
        try:
            compile_skeleton(sketch, schedule)
        except NotUnderstood as error:
            reasons.add(str(error))
    assert reasons == {"the instruction RFactor"}


def test_points_at_once_are_points_one_by_one():
    draws = Draws("whole_depthwise")
    rows = {}
    for sketch, point, schedule in draws:
        rows.setdefault((sketch.key, key_of(sketch, point)), []).append((sketch, point, schedule))
    sketch, _, schedule = max(rows.values(), key=len)[0]
    points = np.array([point for _, point, _ in max(rows.values(), key=len)])
    of_key = KeySymbols(sketch, schedule)
    together = of_key.of(points)
    assert len(points) > 1
    for row, point in zip(together, points, strict=True):
        np.testing.assert_array_equal(of_key.of(point[None])[0], row)

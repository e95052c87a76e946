# SPDX-License-Identifier: Apache-2.0
"""GPU schedules that can be launched: by the draft, and by TVM's own check. Needs no GPU."""

import random
from collections import Counter

import numpy as np
import pytest
from conformance.driving import Drive, drive
from conformance.objectives import timed

from benchmarks.searches.layers import ALL_LAYERS, Layer, make_module
from tvm.s_tir import Schedule, Trace
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.cost_model.draft import GpuLimits
from tvm_droplet_ms.cost_model.draft.block_tree import NotUnderstood
from tvm_droplet_ms.cost_model.draft.gpu.gpu_launch import compile_launch
from tvm_droplet_ms.cost_model.draft.gpu.gpu_limits import TaskLimits
from tvm_droplet_ms.cost_model.found_by_name import find_draft
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer
from tvm_droplet_ms.search_strategy.design_spaces import EncodedSpaces
from tvm_droplet_ms.search_strategy.published.decisions import Sketch

A100 = Target("nvidia/nvidia-a100")
MATMUL = Layer("a matrix product", "matmul", (128, 128, 128))
HALVES = Layer("one on tensor cores", "matmul", (512, 512, 512, "float16", "float32"))

PADDED = Layer(
    "147 products a sum, padded to 160",
    "conv2d_nhwc",
    (1, 32, 32, 3, 64, 7, 2, 3, 1, 1, "float16", "float16"),
)


pytestmark = pytest.mark.usefixtures("fast_contexts")


def context_of(layer: Layer, strategy: ms.SearchStrategy | str = "replay-trace") -> ms.TuneContext:
    return ms.TuneContext(
        make_module(layer),
        target=A100,
        space_generator="post-order-apply",
        search_strategy=strategy,
        rand_state=1,
        num_threads=1,
    )


def accepted_schedules(layer: Layer, draws: int) -> Counter[str]:
    """Draw schedules of each sketch as TVM does, and count those that its postprocessors accept.

    "unknown" are those of sketches that the draft does not understand, "missed" accepted ones
    that it refuses.
    """
    context, limits = context_of(layer), GpuLimits.of(A100)
    counts = Counter[str]()
    generator = random.Random(0)
    for space in context.generate_design_space():
        trace = space.trace.simplified(remove_postproc=True)
        sketch = Sketch.from_trace(trace)
        launch = None
        for draw in range(draws):
            schedule = Schedule(
                context.mod, seed=generator.randint(1, 2**31 - 2), debug_mask="none"
            )
            Trace(trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
            if draw == 0:
                try:
                    launch = compile_launch(sketch, schedule)
                except NotUnderstood:
                    counts["unknown"] += draws
            point = sketch.read(schedule.trace.simplified(remove_postproc=True))
            schedule.enter_postproc()
            is_accepted = all(step.apply(schedule) for step in context.space_generator.postprocs)
            counts["drawn"] += 1
            counts["accepted"] += is_accepted
            if launch is not None:
                is_drafted = bool(
                    launch.is_possible(np.array([point]), limits.threads, limits.shared_bytes)[0]
                )
                counts["drafted"] += is_drafted
                counts["right"] += is_drafted and is_accepted
                counts["missed"] += is_accepted and not is_drafted
    return counts


def test_limits_are_those_of_the_target():
    assert GpuLimits.of(A100) == GpuLimits(threads=1024, shared_bytes=49152)
    assert find_draft(A100) == GpuLimits.of(A100)
    with pytest.raises(ValueError, match="max_threads_per_block is not among the attributes"):
        GpuLimits.of(Target({"kind": "llvm"}))
    with pytest.raises(ValueError, match="shared_bytes is 0, expected a positive integer"):
        GpuLimits(threads=32, shared_bytes=0)


@pytest.mark.parametrize("name", ["dense", "conv2d", "conv2d_7x7"])
def test_draft_says_what_tvm_accepts(name):
    """All sketches, with and without copies that are made some stages before they are used."""
    counts = accepted_schedules(ALL_LAYERS[name], 40)
    assert counts["drawn"] >= 40
    assert counts["unknown"] == 0
    assert counts["missed"] == 0
    assert 0 < counts["right"] == counts["drafted"] == counts["accepted"] < counts["drawn"] / 3


def test_tensor_cores():
    """Warps, fragments, padded rows, and vectors of strided operands: nothing is missed."""
    counts = accepted_schedules(HALVES, 40)
    assert counts["drawn"] == 80
    assert counts["unknown"] == 0
    assert counts["missed"] == 0
    assert 0 < counts["right"] == counts["accepted"] < counts["drawn"] / 2
    assert counts["right"] >= 0.95 * counts["drafted"]


def test_no_vector_is_made_of_elements_and_padding():
    """TVM loads such elements one by one, and refuses no strided ones."""
    counts = accepted_schedules(PADDED, 16)
    assert counts["missed"] == 0
    assert 0 < counts["right"] == counts["accepted"]


def test_what_is_not_understood_is_accepted():
    """A softmax: TVM offers no more threads than a block may have, and shares little memory."""
    counts = accepted_schedules(ALL_LAYERS["softmax"], 8)
    assert counts["unknown"] == counts["drawn"] == counts["accepted"] == 32


def task_limits(layer: Layer) -> TaskLimits:
    """The draft of a layer."""
    context = context_of(layer)
    spaces = EncodedSpaces([space.trace for space in context.generate_design_space()])
    return GpuLimits.of(A100).begin(spaces, ScreenedReplayer(context.mod, [], random.Random(0)))


def test_what_is_not_understood_is_named_and_counted():
    limits = task_limits(ALL_LAYERS["softmax"])
    (reason,) = limits.not_understood()
    assert "not bound by its tiling" in reason
    assert limits.not_understood()[reason] == len(limits.spaces.sketches)
    assert limits.summary().startswith("drafted 0 of 4 sketches; 4 with a schedule")
    assert limits.is_possible(0, np.array([limits.spaces.start(0)])).tolist() == [True]


def test_a_pipeline_of_one_iteration_is_refused():
    """Its first values are set within it, where the pipeline has no stage for them."""
    limits = task_limits(ALL_LAYERS["depthwise"])
    tiles = [(1, 1, 1, 1, 1), (14, 1, 2, 4, 1), (1, 2, 56, 1, 1), (32, 1, 1, 1, 1)]
    for outer, is_possible in (((3, 1, 1), True), ((1, 1, 3), False)):
        point = [*tiles, outer, (1, 1, 3), (0,), (0,), (0,)]
        points = np.array([[value for decision in point for value in decision]])
        is_found = [bool(limits.is_possible(sketch, points)[0]) for sketch in range(3)]
        assert is_found == [True, is_possible, is_possible]


def searched(**options) -> Drive:
    """A search of 16 trials, where all kernels take equally long."""
    context = context_of(MATMUL, DropletStrategy(explore_trials=16, **options))
    return drive(context, timed(lambda decisions: 1e-3), max_trials=16, num_trials_per_iter=16)


def replayed(monkeypatch, **options):
    """Replays that a search makes for the schedules that it measures."""
    replays = []
    replay = ScreenedReplayer.replay_all

    def counted(self, traces):
        traces = list(traces)
        replays.extend(traces)
        return replay(self, traces)

    monkeypatch.setattr(ScreenedReplayer, "replay_all", counted)
    assert len(set(searched(**options).modules)) == 16
    return len(replays)


def test_a_gpu_search_replays_what_can_be_launched(monkeypatch):
    """By default, for a GPU."""
    with_draft = replayed(monkeypatch)
    assert with_draft <= 24
    assert replayed(monkeypatch, draft=None) > 4 * with_draft


def test_equal_points_are_drawn_in_random_order():
    """Of the schedules that can be launched, not the first in some order."""
    tiles = np.array([next(iter(trial.decisions)) for trial in searched().trials])
    assert len(np.unique(tiles, axis=0)) > 6


def test_a_target_that_says_one_limit_only_has_no_draft():
    """TVM's own attributes of WebGPU have the shared memory, and no number of threads."""
    target = Target("webgpu")
    assert target.attrs.get("max_shared_memory_per_block") is not None
    assert target.attrs.get("max_threads_per_block") is None
    assert find_draft(target) is None

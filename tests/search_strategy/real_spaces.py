# SPDX-License-Identifier: Apache-2.0
"""Design spaces of real workloads: those of TVM's own rules, and two schedule functions."""

import random
from functools import lru_cache

import tvm
from tvm import te
from tvm.s_tir import Trace
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm.target import Target
from tvm.te import create_prim_func
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer
from tvm_droplet_ms.search_strategy.published.decisions import (
    Prober,
    Sketch,
    largest_parallel_extent,
)

TARGET = Target({"kind": "llvm", "num-cores": 4})
WORKLOADS = {
    "matmul": lambda: te_workload.matmul(60, 257, 1470),
    "conv2d_nhwc": lambda: te_workload.conv2d_nhwc(1, 14, 14, 6, 10, 3, 1, 1),
    "depthwise": lambda: te_workload.depthwise_conv2d_nhwc(1, 14, 14, 30, 3, 1, 1),
    "softmax": lambda: te_workload.softmax_mn(30, 257),
}
EVERY_SPACE = [
    *[("matmul", index) for index in range(3)],
    *[("conv2d_nhwc", index) for index in range(3)],
    *[("depthwise", index) for index in range(3)],
    *[("softmax", index) for index in range(9)],
    ("primes", 0),
]
SOME_SPACES = [("matmul", 1), ("conv2d_nhwc", 0), ("depthwise", 2), ("softmax", 4), ("primes", 0)]


def two_stages(*extents):
    """``B = A * 2; C = B + 1``."""
    a = te.placeholder(extents, name="A")
    b = te.compute(extents, lambda *i: a(*i) * 2.0, name="B")
    c = te.compute(extents, lambda *i: b(*i) + 1.0, name="C")
    return tvm.IRModule({"main": create_prim_func([a, c])})


def primes_space(sch):
    """Tiles of three, an unordered categorical, the parallel annotation, a compute location."""
    consumer, producer = sch.get_sblock("C"), sch.get_sblock("B")
    loops = []
    for loop in sch.get_loops(consumer):
        loops.append(sch.split(loop, sch.sample_perfect_tile(loop, 3, max_innermost_factor=16)))
    sch.reorder(*[split[level] for level in range(3) for split in loops])
    sch.annotate(sch.get_sblock("root"), "meta_schedule.parallel", 64)
    unroll = sch.sample_categorical([4, 1, 16], [0.25, 0.5, 0.25])
    sch.annotate(sch.get_sblock("root"), "meta_schedule.unroll_explicit", unroll)
    sch.compute_at(producer, sch.sample_compute_location(producer), preserve_unit_loops=True)
    return sch


def powers_space(sch):
    """Nothing but the parallel annotation."""
    sch.annotate(sch.get_sblock("root"), "meta_schedule.parallel", 64)
    return sch


# Of extents that are prime, 1, of many primes and a power; and with a plan at every power of two.
SCHEDULE_FUNCTIONS = {
    "primes": (primes_space, (257, 1, 1470, 8)),
    "powers": (powers_space, (2, 2, 2, 2, 2, 2, 2)),
}


@lru_cache
def context(name):
    """A task's context, with its design spaces: TVM's own, or a schedule function above."""
    if name in SCHEDULE_FUNCTIONS:
        apply, extents = SCHEDULE_FUNCTIONS[name]
        space = ms.space_generator.ScheduleFn(
            apply, sch_rules=[], postprocs=ms.Postproc.create("llvm"), mutator_probs={}
        )
        mod = two_stages(*extents)
    else:
        space = "post-order-apply"
        mod = tvm.IRModule({"main": create_prim_func(WORKLOADS[name]())})
    made = ms.TuneContext(mod, target=TARGET, space_generator=space, rand_state=1, num_threads=1)
    return made, made.generate_design_space()


class Space:
    """A design space and the replayer of its traces."""

    def __init__(self, name, index):
        self.context, schedules = context(name)
        self.design = schedules[index].trace
        self.limit = largest_parallel_extent([self.design])
        self.sketch = Sketch.from_trace(self.design)
        self.replayer = ScreenedReplayer(
            self.context.mod,
            self.context.space_generator.postprocs,
            random.Random(f"{name}{index}"),
        )
        self.prober = Prober(self.replayer, self.limit)

    def sample(self):
        """A random point of the space, replayed."""
        candidate = self.replayer.replay(Trace(self.design.insts, {}))
        assert candidate is not None, self.replayer.dropped
        return candidate

    def sample_with_parallel_plans(self):
        """A random point with more than one parallel plan, and its parallel axis."""
        (decision,) = self.decisions("Annotate")
        for _ in range(20):
            candidate = self.sample()
            axis = self.axis(candidate, decision)
            if len(axis.values) > 1:
                return candidate, axis
        raise AssertionError("none of 20 samples has two parallel plans")

    def neighborhood(self, candidate):
        return self.prober.neighborhood(self.sketch, candidate.trace)

    def changed(self, candidate, decision, value):
        """A replay with another value for a decision of one integer."""
        point = list(self.sketch.read(candidate.trace))
        point[decision.start] = value
        return self.replayer.replay(self.sketch.write(candidate.trace, tuple(point)))

    def decisions(self, kind):
        return [decision for decision in self.sketch.decisions if decision.kind.name == kind]

    def axis(self, candidate, decision):
        return self.neighborhood(candidate).axes[self.sketch.decisions.index(decision)]

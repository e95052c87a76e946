# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Measure which GPU schedules TVM accepts, and what the draft says of them. Needs no GPU."""

import argparse
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np

from tvm.s_tir import Schedule, Trace
from tvm.s_tir import meta_schedule as ms
from tvm.target import Target

from ..compat import fast_tune_contexts
from ..draft.block_tree import NotUnderstood
from ..draft.gpu_limits import GpuLimits, compile_launch
from ..draft.index_intervals import UnknownIndex
from ..report import align
from ..search_strategy.decisions import Sketch
from .live.layers import ALL_LAYERS, Layer, make_module

LAYERS = ("dense", "conv2d", "conv2d_nchw", "batch_matmul", "depthwise", "softmax")
"""The layers of the table."""


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--target", default="nvidia/nvidia-a100", help="default: %(default)s")
    parser.add_argument("--layers", nargs="+", choices=ALL_LAYERS, default=LAYERS)
    parser.add_argument("--draws", type=int, default=200, help="schedules of a sketch")
    args = parser.parse_args(argv)
    target = Target(args.target)
    lines = [["layer", "schedules", "accepted", "drafted", "of them accepted", "missed", "unknown"]]
    with fast_tune_contexts():
        for name in args.layers:
            counts = accepted_schedules(ALL_LAYERS[name], target, args.draws)
            drawn = counts["drawn"]
            lines.append(
                [
                    name,
                    str(drawn),
                    f"{counts['accepted'] / max(1, drawn):.1%}",
                    str(counts["drafted"]),
                    f"{counts['right'] / max(1, counts['drafted']):.1%}",
                    str(counts["missed"]),
                    str(counts["unknown"]),
                ]
            )
    print(align(lines))


def accepted_schedules(layer: Layer, target: Target, draws: int) -> Counter[str]:
    """Draw schedules as TVM does, and count those that its postprocessors accept.

    Parameters
    ----------
    layer : Layer
        The workload.
    target : Target
        A GPU.
    draws : int
        Schedules of each sketch.

    Returns
    -------
    counts : Counter[str]
        Schedules "drawn" and "accepted"; those that the draft says can be launched, "drafted", and
        those of them that are accepted, "right"; accepted ones that it refuses, "missed"; and those
        of sketches that it does not understand, "unknown".
    """
    mod = make_module(layer)
    context = ms.TuneContext(
        mod,
        target=target,
        space_generator="post-order-apply",
        search_strategy="replay-trace",
        num_threads=1,
    )
    limits = GpuLimits.of(target)
    counts = Counter[str]()
    generator = random.Random(0)
    for space in context.generate_design_space():
        trace = space.trace.simplified(remove_postproc=True)
        sketch = Sketch.from_trace(trace)
        launch = None
        for draw in range(draws):
            schedule = Schedule(mod, seed=generator.randint(1, 2**31 - 2), debug_mask="none")
            Trace(trace.insts, {}).apply_to_schedule(schedule, remove_postproc=True)
            if draw == 0:
                try:
                    launch = compile_launch(sketch, schedule)
                except (NotUnderstood, UnknownIndex):
                    counts["unknown"] += draws
            point = sketch.read(schedule.trace.simplified(remove_postproc=True))
            schedule.enter_postproc()
            is_accepted = all(step.apply(schedule) for step in context.space_generator.postprocs)
            counts["drawn"] += 1
            counts["accepted"] += is_accepted
            if launch is not None:
                is_drafted = bool(launch.is_possible(np.array([point]), limits)[0])
                counts["drafted"] += is_drafted
                counts["right"] += is_drafted and is_accepted
                counts["missed"] += is_accepted and not is_drafted
    return counts


if __name__ == "__main__":
    main()

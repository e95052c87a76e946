# SPDX-License-Identifier: Apache-2.0

"""A task of which many schedules are measured."""

import random

import numpy as np
from conformance.objectives import bowl, decisions_of
from conformance.workloads import LLVM, make_context, matmul, tile_all

from tvm.s_tir import Trace
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner import RunnerResult
from tvm_droplet_ms.cost_model.features.program_features import ProgramFeatures
from tvm_droplet_ms.cost_model.throughput import pairwise_accuracy
from tvm_droplet_ms.cost_model.training_data import MeasuredWorkload, target_text
from tvm_droplet_ms.search_strategy.candidates import ScreenedReplayer


class Task:
    """A matrix product with a sample of its schedules and a made-up time for each."""

    def __init__(self, *shape: int, count: int = 160) -> None:
        self.context = make_context(ms.search_strategy.ReplayTrace(), matmul(*shape), tile_all)
        (space,) = self.context.generate_design_space()
        replayer = ScreenedReplayer(self.context.mod, [], random.Random(0))
        drawn = [replayer.replay(Trace(space.trace.insts, {})) for _ in range(count)]
        distinct = {candidate.module: candidate for candidate in drawn}
        self.candidates = [candidate.measure_candidate() for candidate in distinct.values()]
        self.secs = np.array([bowl(decisions_of(candidate.sch)) for candidate in self.candidates])
        self.results = [RunnerResult([secs], None) for secs in self.secs]

    def workload(self, extractor=None) -> MeasuredWorkload:
        features = (extractor or ProgramFeatures()).extract(self.context, self.candidates)
        return MeasuredWorkload("made up", target_text(LLVM), features, self.secs)

    def update(self, model, begin: int, end: int) -> None:
        model.update(self.context, self.candidates[begin:end], self.results[begin:end])

    def predict(self, model, begin: int = 0, end: int | None = None) -> np.ndarray:
        return model.predict(self.context, self.candidates[begin:end])

    def accuracy(self, model, begin: int = 0) -> float:
        return pairwise_accuracy(self.predict(model, begin), self.secs[begin:])


def inverted(workload: MeasuredWorkload) -> MeasuredWorkload:
    return MeasuredWorkload(workload.name, workload.target, workload.features, 1e-6 / workload.secs)

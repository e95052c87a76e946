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

"""How well a model ranks a workload's programs after some of its own, by how it adapts.

    python -m tvm_droplet_ms.bench.live.adaptations --out models --programs 256 --markdown

Each space is held out in turn, which another CPU measured than the samples that the source models
learn from (``--source samples``), or the source learns from all other workloads (``--source
others``). Programs of the space are learned from in batches of 8, up to 64, and the rest is ranked.
The tables give the share of pairs that are ordered rightly (0.5 is chance) after each number of
programs, means over spaces and seeds; and, for one source that goes through all spaces one after
the other, what it has there before any program is learned from.
"""

import argparse
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

# Before NumPy is loaded: the models are compared on one thread.
os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from ...cost_model.adaptation import Adaptation, MeasuredTask
from ...cost_model.model_file import ModelKind
from ...cost_model.momentum import MOMENTUM, AdaptedNetwork
from ...cost_model.pattern_aware import PatternAware
from ...cost_model.pretrained_model import PretrainedModel
from ...cost_model.residual import ResidualTrees
from ...cost_model.throughput import relative_throughput
from ...cost_model.training.ranking import pairwise_accuracy
from ...measure import fast_start
from ..layers import LAYERS
from ..library import find_space, shipped_samples, shipped_spaces
from .cost_model_data import SpaceData, read_data
from .cost_models import enumerated, write
from .tables import format_table

BATCH = 8
"""Programs of a space that are learned from at once."""

SHOWN = (0, 8, 16, 32, 64)
"""Numbers of programs after which the rest of the space is ranked."""

_TARGET = '{"kind": "llvm"}'
"""The target that the files of sources name: all spaces are of CPUs."""


class Frozen:
    """A model that learns nothing."""

    is_trained = True

    def __init__(self, model: PretrainedModel) -> None:
        self._model = model.model

    def learn(self, tasks: Sequence[MeasuredTask]) -> None:
        """Ignore the measurements."""

    def predict(self, features: np.ndarray, task: MeasuredTask) -> np.ndarray:
        """Predict by the source."""
        return self._model.predict(features)


class FromScratch:
    """A network that is trained on the measurements alone, anew whenever it is asked."""

    is_trained = True

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def learn(self, tasks: Sequence[MeasuredTask]) -> None:
        """Do nothing: training takes longer than a batch is worth."""

    def predict(self, features: np.ndarray, task: MeasuredTask) -> np.ndarray:
        """Train on the task, and predict; zeros before the first measurement."""
        if not task.secs:
            return np.zeros(len(features))
        known, throughput = np.array(task.features), relative_throughput(np.array(task.secs))
        workloads = np.zeros(len(known), dtype=int)
        model = PatternAware.fit(known, throughput, workloads, objective="rank", seed=self._seed)
        return model.predict(features)


Make = Callable[[PretrainedModel | None, int], Adaptation]
"""Makes an adaptation of a source with a seed."""


def _network(momentum: float) -> Make:
    def make(source: PretrainedModel | None, seed: int) -> Adaptation:
        if source is None or not isinstance(source.model, PatternAware):
            raise TypeError(f"source is {source!r}, expected a pacm model")
        return AdaptedNetwork(source.model, momentum=momentum, seed=seed)

    return make


def _frozen(source: PretrainedModel | None, seed: int) -> Adaptation:
    if source is None:
        raise TypeError("source is None, expected a model")
    return Frozen(source)


def _residual(source: PretrainedModel | None, seed: int) -> Adaptation:
    return ResidualTrees(source, objective="regression", seed=seed)


ADAPTED: Mapping[str, tuple[ModelKind, bool, Make]] = {
    "PaCM, momentum 0.99": ("pacm", True, _network(MOMENTUM)),
    "PaCM, momentum 0.9": ("pacm", True, _network(0.9)),
    "PaCM, fine-tune": ("pacm", True, _network(1.0)),
    "PaCM, residual": ("pacm", True, _residual),
    "PaCM, frozen": ("pacm", True, _frozen),
    "PaCM, from scratch": ("pacm", False, lambda _, seed: FromScratch(seed)),
    "trees, residual": ("trees", True, _residual),
    "trees, frozen": ("trees", True, _frozen),
    "trees, from scratch": ("trees", False, _residual),
}
"""The kind of features, whether there is a source, and what adapts it."""


def learning_curve(
    adaptation: Adaptation, features: np.ndarray, secs: np.ndarray, seed: int
) -> list[float]:
    """The share of pairs of the programs never learned from, after each of ``SHOWN``."""
    order = np.random.default_rng(seed).permutation(len(secs))
    tested = np.sort(order[SHOWN[-1] :])
    curve = []
    for count in range(0, SHOWN[-1] + 1, BATCH):
        known = order[:count]
        task = MeasuredTask(list(features[known]), secs[known].tolist())
        if count:
            adaptation.learn([task])
        if count in SHOWN:
            scores = adaptation.predict(features[tested], task)
            curve.append(pairwise_accuracy(scores, secs[tested]))
    return curve


def in_sequence(
    source: PatternAware, spaces: Sequence[SpaceData], momentum: float, seed: int
) -> list[float]:
    """The share of pairs of each space by a source that went through those before it.

    Parameters
    ----------
    source : PatternAware
        The source at first.
    spaces : Sequence[SpaceData]
        The spaces, in their order; each but the last teaches as in ``learning_curve``.
    momentum : float
        The share of the source that stays.
    seed : int
        Seed of the programs learned from.
    """
    found = []
    for space in spaces:
        features = space.features["pacm"]
        found.append(pairwise_accuracy(source.predict(features), space.secs))
        adapted = AdaptedNetwork(source, momentum=momentum, seed=seed)
        learning_curve(adapted, features, space.secs, seed)
        source = adapted.source
    return found


def source_model(
    kind: ModelKind, data: Sequence[SpaceData], path: Path, seed: int = 0
) -> PretrainedModel:
    """A model of some workloads, kept in a file."""
    if not path.exists():
        PretrainedModel.learn(
            [replace(one.as_workload(kind), target=_TARGET) for one in data],
            model=kind,
            objective="rank" if kind == "pacm" else "regression",
            seed=seed,
        ).save(path)
    return PretrainedModel.load(path)


def run(options: argparse.Namespace) -> dict[str, list[list[float]]]:
    """The curves of each adaptation, one for each space and seed; makes what is missing."""
    data = read_all(options)
    curves: dict[str, list[list[float]]] = {}
    for name, model in itertools.product(options.spaces, options.models):
        held_out = data[name]
        kind, has_source, make = ADAPTED[model]
        for seed in range(options.seeds):
            file = f"{options.source}-{model.replace(', ', '-')}-{options.programs}-{seed}.json"
            path = options.out / "adapted" / name / file
            if not path.exists():
                source = _source(kind, held_out, data, options) if has_source else None
                features = held_out.features[kind]
                curve = learning_curve(make(source, seed), features, held_out.secs, seed)
                write(path, {"space": name, "model": model, "seed": seed, "curve": curve})
                text = ", ".join(f"{value:.3f}" for value in curve)
                print(f"{name}, {model}, seed {seed}: {text}", flush=True)
            curves.setdefault(model, []).append(json.loads(path.read_text())["curve"])
    return curves


def read_all(options: argparse.Namespace) -> dict[str, SpaceData]:
    """The programs of the spaces held out and of all that is learned from."""
    files = shipped_samples() | shipped_spaces()
    files |= {name: find_space(name) for name in options.spaces}
    directory = options.out / "features"
    return {name: read_data(file, options.programs, directory) for name, file in files.items()}


def _source(
    kind: ModelKind, held_out: SpaceData, data: Mapping[str, SpaceData], options: argparse.Namespace
) -> PretrainedModel:
    directory = options.out / "sources"
    if options.source == "samples":
        samples = [data[name] for name in LAYERS]
        return source_model(kind, samples, directory / f"samples-{kind}.model")
    others = [one for one in data.values() if one.workload != held_out.workload]
    return source_model(kind, others, directory / f"{held_out.name}-{kind}.model")


def sequence_table(options: argparse.Namespace) -> list[list[str]]:
    """The share of pairs at the places of a sequence of spaces, means over orders."""
    data = read_all(options)
    samples = [data[name] for name in LAYERS]
    source = source_model("pacm", samples, options.out / "sources/samples-pacm.model").model
    if not isinstance(source, PatternAware):
        raise TypeError(f"source is {source!r}, expected a PatternAware")
    lines = [["source", "first half of the spaces", "second half"]]
    for name, momentum in (("frozen", 1.0), ("momentum 0.99", MOMENTUM), ("momentum 0.9", 0.9)):
        halves = []
        for seed in range(options.seeds):
            order = np.random.default_rng(seed).permutation(len(options.spaces))
            spaces = [data[options.spaces[place]] for place in order]
            found = in_sequence(source, spaces, momentum, seed)
            halves.append([np.mean(half) for half in np.array_split(found, 2)])
        lines.append([name, *(f"{value:.3f}" for value in np.mean(halves, axis=0))])
    return lines


def main() -> None:
    """Parse the arguments, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="where results are kept")
    parser.add_argument("--spaces", nargs="+", help="which to hold out (default: ten of them)")
    parser.add_argument("--models", nargs="+", choices=list(ADAPTED), default=list(ADAPTED))
    parser.add_argument("--source", choices=["samples", "others"], default="samples")
    parser.add_argument("--programs", type=int, default=256, help="of each space (default: 256)")
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--sequence", action="store_true", help="one source through all spaces")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    options = parser.parse_args()
    fast_start()
    options.spaces = options.spaces or enumerated()
    if options.sequence:
        lines = sequence_table(options)
    else:
        lines = [["model", *(f"after {count}" for count in SHOWN)]]
        for model, curves in run(options).items():
            lines.append([model, *(f"{value:.3f}" for value in np.mean(curves, axis=0))])
    print("\n" + format_table(lines[0], lines[1:], options.markdown))


if __name__ == "__main__":
    main()

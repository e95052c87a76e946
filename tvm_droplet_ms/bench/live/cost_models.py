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
"""Ranking quality of cost models on workloads with no or few measured programs.

    python -m tvm_droplet_ms.bench.live.cost_models --out models --markdown

Each space is held out in turn. A model learns from the programs of all other workloads of the
package, or from ``--own`` programs of the space itself, and ranks the rest of the space. The
models: this project's boosted trees, TreeGRU and PaCM, with their objectives, and MetaSchedule's
``XGBModel``, trained as it trains itself. All see the same programs. The tables give the share of
pairs that are ordered rightly (0.5 is chance), the best time over the best among the 1 and the 5
programs ranked first, and the time to encode and to score a candidate in batches of 64, on one
thread.

A finished result is a file in ``--out`` and is not made again: after a stop, the same command goes
on. ``XGBModel`` takes no seed.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from tvm.s_tir.meta_schedule.cost_model import XGBModel
from tvm.s_tir.meta_schedule.cost_model.xgb_model import FeatureGroup

from ...cost_model.boosted_trees import Objective
from ...cost_model.model_file import ModelKind
from ...cost_model.pretrained_model import PretrainedModel
from ...cost_model.training.ranking import pairwise_accuracy, top_k_score
from ...measure import fast_start
from ..library import HELD_OUT, find_space, shipped_samples, shipped_spaces
from .cost_model_data import BATCH, SpaceData, read_data
from .tables import format_table

Learning = list[tuple[SpaceData, np.ndarray]]
"""Spaces, each with the rows of the programs to learn from."""

Scorer = Callable[[SpaceData, np.ndarray], np.ndarray]
"""Scores rows of a space; a higher score is a faster program."""


@dataclass(frozen=True)
class Model:
    """A model of the comparison.

    Parameters
    ----------
    encoder : str
        The kind of its features in ``SpaceData.encode_us``.
    learn : Callable[[Learning, int], Scorer]
        Trains it with a seed.
    """

    encoder: str
    learn: Callable[[Learning, int], Scorer]


def ours(kind: ModelKind, objective: Objective) -> Model:
    """A kind of this project's models."""

    def learn(learning: Learning, seed: int) -> Scorer:
        workloads = [data.as_workload(kind, rows) for data, rows in learning]
        model = PretrainedModel.learn(workloads, model=kind, objective=objective, seed=seed).model
        return lambda data, rows: model.predict(data.features[kind][rows])

    return Model(kind, learn)


def learn_xgb(learning: Learning, _: int) -> Scorer:
    """MetaSchedule's model on its own features, trained as it trains itself."""
    model = XGBModel._cls(num_tuning_cores=1, verbose_eval=0)
    groups = []
    for data, rows in learning:
        # The model expects 1e10 as the time of a failure.
        costs = np.where(np.isfinite(data.secs), data.secs, 1e10)[rows].astype("float32")
        groups.append(FeatureGroup(data.name, [data.stores[row] for row in rows], costs))
    features = [feature for group in groups for feature in group.features]
    model._train(features, np.concatenate([group.min_cost / group.costs for group in groups]))
    return lambda data, rows: model._predict([data.stores[row] for row in rows])


MODELS: Mapping[str, Model] = {
    "trees, regression": ours("trees", "regression"),
    "trees, rank": ours("trees", "rank"),
    "TreeGRU, regression": ours("treegru", "regression"),
    "TreeGRU, rank": ours("treegru", "rank"),
    "PaCM": ours("pacm", "rank"),
    "PaCM, stores": ours("pacm-stores", "rank"),
    "PaCM, regression": ours("pacm", "regression"),
    "XGBModel": Model("stores", learn_xgb),
}


def judge(
    held_out: SpaceData, others: Sequence[SpaceData], model: Model, own: int, seed: int
) -> dict[str, Any]:
    """Train on ``own`` programs of the space, or on the others if 0, and rank the rest."""
    order = np.random.default_rng(seed).permutation(len(held_out.secs))
    if own:
        learning, tested = [(held_out, np.sort(order[:own]))], np.sort(order[own:])
    else:
        learning, tested = [(data, np.arange(len(data.secs))) for data in others], np.sort(order)
    begun = time.perf_counter()
    score = model.learn(learning, seed)
    train_secs = time.perf_counter() - begun
    secs = held_out.secs[tested]
    scores = score(held_out, tested)
    batches = [tested[start : start + BATCH] for start in range(0, len(tested), BATCH)]
    took = []
    for batch in batches * 3:
        begun = time.perf_counter()
        score(held_out, batch)
        took.append((time.perf_counter() - begun) / len(batch))
    return {
        "pairwise": pairwise_accuracy(scores, secs),
        "top_1": top_k_score([scores], [secs], 1),
        "top_5": top_k_score([scores], [secs], 5),
        "encode_us": held_out.encode_us[model.encoder],
        "predict_us": 1e6 * float(np.median(took)),
        "train_secs": train_secs,
        "programs": len(tested),
        "learned_from": sum(len(rows) for _, rows in learning),
    }


def run(options: argparse.Namespace) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """The results of all spaces and seeds by training data and model; makes what is missing."""
    files = shipped_samples() | shipped_spaces()
    files |= {name: find_space(name) for name in options.spaces}
    data = {
        name: read_data(file, options.programs, options.out / "features")
        for name, file in files.items()
    }
    results: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for name in options.spaces:
        held_out = data[name]
        others = [space for space in data.values() if space.workload != held_out.workload]
        for own in dict.fromkeys((0, options.own)):
            how = f"{own} of its own" if own else "other workloads"
            for model in options.models:
                # XGBModel takes no seed: only its training data could differ.
                seeds = 1 if model == "XGBModel" and not own else options.seeds
                for seed in range(seeds):
                    file = f"{model.replace(', ', '-')}-{own}-{options.programs}-{seed}.json"
                    path = options.out / held_out.name / file
                    if not path.exists():
                        found = judge(held_out, others, MODELS[model], own, seed)
                        found |= {"space": held_out.name, "model": model, "seed": seed}
                        write(path, found)
                        print(f"{held_out.name}, {how}, {model}, seed {seed}: ", end="")
                        print(f"{found['pairwise']:.3f}, {found['train_secs']:.0f} s", flush=True)
                    results.setdefault((how, model), []).append(json.loads(path.read_text()))
    return results


def write(path: Path, result: dict[str, Any]) -> None:
    """Write a result as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1))
    partial.replace(path)


COLUMNS = {
    "pairwise": "{:.3f}",
    "top_1": "{:.3f}",
    "top_5": "{:.3f}",
    "encode_us": "{:.0f}",
    "predict_us": "{:.0f}",
    "train_secs": "{:.1f}",
}


def tables(results: Mapping[tuple[str, str], list[dict[str, Any]]]) -> tuple[list[list[str]], ...]:
    """The means over spaces and seeds, and the pairwise accuracy of each space."""
    means = [["model", "learned from", *(name.replace("_", " ") for name in COLUMNS)]]
    spaces = list(dict.fromkeys(result["space"] for found in results.values() for result in found))
    by_space = [["model", "learned from", *spaces]]
    for (how, model), found in results.items():
        # Each space counts as much, however many seeds it has.
        of_spaces = {
            name: [
                np.mean([result[name] for result in found if result["space"] == space])
                for space in spaces
            ]
            for name in COLUMNS
        }
        cells = [text.format(np.mean(of_spaces[name])) for name, text in COLUMNS.items()]
        means.append([model, how, *cells])
        by_space.append([model, how, *(f"{value:.3f}" for value in of_spaces["pairwise"])])
    return means, by_space


def enumerated() -> list[str]:
    """The spaces of the package that have a time for every module and are not set aside."""
    return [name for name in shipped_spaces() if name not in HELD_OUT]


def main() -> None:
    """Parse the arguments, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="where results are kept")
    parser.add_argument("--spaces", nargs="+", help="which to hold out (default: ten of them)")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--programs", type=int, default=1024, help="of each space (default: 1024)")
    parser.add_argument(
        "--own", type=int, default=64, help="of the space itself; 0 for none (default: 64)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    options = parser.parse_args()
    fast_start()
    options.spaces = options.spaces or enumerated()
    for table in tables(run(options)):
        print("\n" + format_table(table[0], table[1:], options.markdown))


if __name__ == "__main__":
    main()

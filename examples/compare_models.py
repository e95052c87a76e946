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
"""Which cost model ranks programs best, of workloads that it has not seen and of few of their own?

    python examples/compare_models.py --out models --markdown

Each space is held out in turn. A model learns from the programs of all other workloads of the
package, or from ``--own`` programs of the space itself, and ranks the rest of the space's. The
models: this project's boosted trees and TreeGRU (``pip install 'tvm-droplet-ms[treegru]'``), for
both of their objectives, and MetaSchedule's ``XGBModel``, trained as it trains itself. All see
the same programs. Prints the share of pairs that are ordered rightly (0.5 is chance), the best time
over the best among the 1 and the 5 programs ranked first, and what encoding and scoring a candidate
costs in batches of 64, on one thread.

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

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from _model_data import BATCH, SpaceData, read_data

from tvm.s_tir.meta_schedule.cost_model import XGBModel
from tvm.s_tir.meta_schedule.cost_model.xgb_model import FeatureGroup
from tvm_droplet_ms.bench.files import load
from tvm_droplet_ms.bench.library import ASIDE, find_space, shipped_samples, shipped_spaces
from tvm_droplet_ms.bench.space import Space
from tvm_droplet_ms.cost_model.pretrained_model import PretrainedModel
from tvm_droplet_ms.cost_model.training.ranking import pairwise_accuracy, top_k_score
from tvm_droplet_ms.measure import fast_start
from tvm_droplet_ms.report import align

Learning = list[tuple[SpaceData, np.ndarray]]
"""Spaces, and which of their programs to learn from."""

Scorer = Callable[[SpaceData, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Model:
    """A model of the comparison: what it sees, and how it learns."""

    encoder: str
    learn: Callable[[Learning, int], Scorer]


def ours(kind: str, objective: str) -> Model:
    """This project's trees or TreeGRU."""

    def learn(learning: Learning, seed: int) -> Scorer:
        workloads = [data.as_workload(kind, rows) for data, rows in learning]
        model = PretrainedModel.learn(workloads, model=kind, objective=objective, seed=seed).model
        return lambda data, rows: model.predict(getattr(data, kind)[rows])

    return Model(kind, learn)


def learn_xgb(learning: Learning, _: int) -> Scorer:
    """MetaSchedule's model, on its own features and in its own way."""
    model = XGBModel._cls(num_tuning_cores=1, verbose_eval=0)
    groups = []
    for data, rows in learning:
        # 1e10 is what the model takes for the time of a failure.
        costs = np.where(np.isfinite(data.secs), data.secs, 1e10)[rows].astype("float32")
        groups.append(FeatureGroup(data.name, [data.stores[row] for row in rows], costs))
    features = [one for group in groups for one in group.features]
    model._train(features, np.concatenate([group.min_cost / group.costs for group in groups]))
    return lambda data, rows: model._predict([data.stores[row] for row in rows])


MODELS: Mapping[str, Model] = {
    "trees, regression": ours("trees", "regression"),
    "trees, rank": ours("trees", "rank"),
    "TreeGRU, regression": ours("treegru", "regression"),
    "TreeGRU, rank": ours("treegru", "rank"),
    "XGBModel": Model("stores", learn_xgb),
}


def judge(
    held_out: SpaceData, others: Sequence[SpaceData], model: Model, own: int, seed: int
) -> dict:
    """Learn, of ``own`` programs of the space or of others, rank the rest, and say how well."""
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


def run(options: argparse.Namespace) -> dict[tuple[str, str], list[dict]]:
    """The results of all spaces and seeds, by how it learned and by model; makes what is not."""
    files = shipped_samples() | shipped_spaces()
    files |= {name: find_space(name) for name in options.spaces}
    data = {
        name: read_data(file, options.programs, options.out / "features")
        for name, file in files.items()
    }
    results: dict[tuple[str, str], list[dict]] = {}
    for name in options.spaces:
        held_out = data[name]
        others = [one for one in data.values() if one.workload != held_out.workload]
        for own in (0, options.own):
            how = f"{own} of its own" if own else "other workloads"
            for model in options.models:
                # XGBModel takes no seed: only what it learns from could differ.
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


def write(path: Path, result: dict) -> None:
    """Write a result, whole or not at all."""
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


def tables(results: Mapping[tuple[str, str], list[dict]]) -> tuple[list[list[str]], ...]:
    """The means over spaces and seeds, and the pairwise accuracy of each space."""
    means = [["model", "learned from", *(name.replace("_", " ") for name in COLUMNS)]]
    spaces = list(dict.fromkeys(one["space"] for found in results.values() for one in found))
    by_space = [["model", "learned from", *spaces]]
    for (how, model), found in results.items():
        # Each space counts as much, however many seeds it has.
        of_spaces = {
            name: [
                np.mean([one[name] for one in found if one["space"] == space]) for space in spaces
            ]
            for name in COLUMNS
        }
        cells = [text.format(np.mean(of_spaces[name])) for name, text in COLUMNS.items()]
        means.append([model, how, *cells])
        by_space.append([model, how, *(f"{value:.3f}" for value in of_spaces["pairwise"])])
    return means, by_space


def enumerated() -> list[str]:
    """The spaces of the package that have a time for every module and are not set aside."""
    files = {name: file for name, file in shipped_spaces().items() if name not in ASIDE}
    return [name for name, file in files.items() if isinstance(load(file), Space)]


def main() -> None:
    """Parse the arguments, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="where results are kept")
    parser.add_argument("--spaces", nargs="+", help="which to hold out (default: ten of them)")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--programs", type=int, default=1024, help="of each space (default: 1024)")
    parser.add_argument("--own", type=int, default=64, help="learned of the space (default: 64)")
    parser.add_argument("--seeds", type=int, default=3, help="how many (default: 3)")
    parser.add_argument("--markdown", action="store_true", help="print tables in Markdown")
    options = parser.parse_args()
    fast_start()
    options.spaces = options.spaces or enumerated()
    for table in tables(run(options)):
        print("\n" + (align(table) if options.markdown else _plain(table)))


def _plain(table: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in table]
    return "\n".join(lines)


if __name__ == "__main__":
    main()

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
"""Cost models of some layers, for the transfer experiment of compare_live.py.

    python examples/learn_layers.py --out learned
    python examples/compare_live.py --layers C7 C8 C9 matmul_1024 --methods evolutionary droplet \\
        --model learned/transfer.model --xgb-model learned/xgb.tar --trials 64 --out compare

Tunes each layer with ``DropletStrategy`` and its defaults, and learns of the records, and of
nothing else, what ``droplet-ms pretrain`` learns of databases (``transfer.model``), and what TVM's
``XGBModel`` does when it is told of one layer after the other (``xgb.tar``). A layer that is done
is not tuned again: after a stop, the same command goes on.
"""

import argparse
import sys
import time
from pathlib import Path

from _compare_run import make_module
from compare_live import LAYERS, RESNET, layer_of

from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, LocalRunner, RunnerResult
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.cost_model.training.databases import read_training_data
from tvm_droplet_ms.cost_model.training.pretrain import pretrain
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import WarmBuilder, fast_start

SOURCES = ("C1", "C2", "C3", "C4", "C5", "C6")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--layers", nargs="+", choices=LAYERS | RESNET, default=list(SOURCES))
    parser.add_argument("--trials", type=int, default=128, help="measured trials of every layer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("learned"), help="where it is all kept")
    args = parser.parse_args()
    fast_start()
    directories = [tune(args, layer) for layer in args.layers]
    pretrain(read_training_data(directories), args.out / "transfer.model", seed=args.seed)
    learn_as_tvm(args, directories)
    return 0


def tune(args: argparse.Namespace, layer: str) -> Path:
    """The work directory of a tuned layer."""
    directory = Path(args.out, f"{layer}-{args.trials}-{args.seed}")
    done = directory / "done"
    if not done.exists():
        directory.mkdir(parents=True, exist_ok=True)
        start = time.time()
        ms.tune_tir(
            make_module(settings_of(layer)),
            host_target(),
            str(directory),
            max_trials_global=args.trials,
            num_trials_per_iter=32,
            builder=WarmBuilder(),
            runner=LocalRunner(
                evaluator_config=EvaluatorConfig(number=3, repeat=1, min_repeat_ms=100)
            ),
            strategy=DropletStrategy(),
            seed=args.seed,
        )
        done.touch()
        print(f"{layer}: {args.trials} trials, {time.time() - start:.0f} s", flush=True)
    return directory


def settings_of(layer: str) -> dict[str, list[object]]:
    return {"layer": [layer_of(layer)[1], *layer_of(layer)[2]]}


def learn_as_tvm(args: argparse.Namespace, directories: list[Path]) -> None:
    """Tell TVM's model of the records, one layer after the other, and save it."""
    model = ms.cost_model.XGBModel(num_warmup_samples=0)
    for layer, directory in zip(args.layers, directories, strict=True):
        database = ms.database.JSONDatabase(work_dir=str(directory))
        context = ms.TuneContext(make_module(settings_of(layer)), target=host_target())
        candidates, results = [], []
        for record in database.get_all_tuning_records():
            schedule = Schedule(record.workload.mod)
            record.trace.apply_to_schedule(schedule, remove_postproc=False)
            args_info = ArgInfo.from_entry_func(schedule.mod, remove_preproc=True)
            candidates.append(MeasureCandidate(schedule, args_info))
            results.append(RunnerResult(list(record.run_secs), None))
        model.update(context, candidates, results)
    path = args.out / "xgb.tar"
    model.save(str(path))
    print(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main())

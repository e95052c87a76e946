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
"""DropletStrategy against TVM's `evolutionary` and TVM's own droplet, side by side, live.

    python examples/compare_live.py --out compare
    python examples/compare_live.py --out compare --table-only --markdown

Methods, all with the same builder, runner, cost model, seeds and number of measured trials:

evolutionary
    ``ms.tune_tir(..., strategy="evolutionary")``.
droplet
    ``ms.tune_tir(..., strategy=DropletStrategy())`` with its defaults.
tvm-droplet
    What ``ms.tune_tir(..., post_optimization=True)`` does, with its trials charged: evolutionary
    search for trials - P, then ``PostOpt`` for P (``--post-trials``, a third of the trials unless
    told). Every candidate that PostOpt sends to the builder is a trial, the re-measured incumbent
    and the failures too. It may stop before P; TVM cannot spend the rest, so it stays unspent.
    As it ships, PostOpt makes its own builder, whose timeout of 10 s is shorter than what its
    workers import first, and a runner of other settings than the search's
    (``meta_schedule/post_optimization/space.py``). ``--show-as-shipped`` shows what comes of that.
    In the comparison it is given the builder and the runner of the other methods.
droplet-before
    ``DropletStrategy()`` of another checkout of this project (``--before CHECKOUT``), to see what a
    change is worth.
droplet-transfer, evolutionary-transfer
    ``droplet`` with the cost model that ``droplet-ms pretrain`` has made of other workloads
    (``--model``), and ``evolutionary`` with TVM's own model as it was saved after them, its warm-up
    off (``--xgb-model``). ``examples/learn_layers.py`` makes both from layers of ResNet-18.

Every run is a process of its own, one after the other, in an order that rotates from seed to seed
and from layer to layer. A finished run is a file in ``--out`` and is not repeated: after a stop,
the same command goes on. After changing the code of a strategy, use another ``--out``. After the
runs of a layer, their winners at every checkpoint are rebuilt from their traces, as
``compile_tir`` does, and timed in turns in one more process, on new buffers in each round. Trials
are measured in batches of ``--num-trials-per-iter`` = 32 at most.
"""

import argparse
import importlib
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from _compare_report import (
    BASELINE,
    BEFORE,
    LEGEND,
    TRANSFER,
    XGB_TRANSFER,
    Results,
    as_shipped_report,
    best_trial,
    layer_report,
    summary_report,
    trial_secs,
)

LAYERS: dict[str, tuple[str, str, tuple[int, ...]]] = {
    "conv2d": ("3x3 convolution, NHWC 56x56x64 -> 64", "conv2d_nhwc", (1, 56, 56, 64, 64, 3, 1, 1)),
    "depthwise": (
        "3x3 depthwise convolution, NHWC 112x112x32",
        "depthwise_conv2d_nhwc",
        (1, 112, 112, 32, 3, 1, 1),
    ),
    "dense": ("dense, 128x1024 times 1024x1024", "matmul", (128, 1024, 1024)),
    "softmax": ("softmax over the last axis of 512x1024", "softmax_mn", (512, 1024)),
    "conv2d_nchw": (
        "3x3 convolution, NCHW 64x56x56 -> 64",
        "conv2d_nchw",
        (1, 56, 56, 64, 64, 3, 3, 1, 1),
    ),
    "conv2d_1x1": (
        "1x1 convolution, NHWC 28x28x256 -> 128",
        "conv2d_nhwc",
        (1, 28, 28, 256, 128, 1),
    ),
    "conv2d_7x7": (
        "7x7 convolution of stride 2, NHWC 224x224x3 -> 64",
        "conv2d_nhwc",
        (1, 224, 224, 3, 64, 7, 2, 3),
    ),
    "batch_matmul": (
        "batched matmul, 12 of 128x64 times 64x128",
        "batch_matmul_nkkm",
        (12, 128, 128, 64),
    ),
}
"""What it is, and the function of ``tvm.s_tir.meta_schedule.testing.te_workload`` that makes it."""

RESNET: dict[str, tuple[str, str, tuple[int, ...]]] = {
    f"C{number}": (
        f"{kernel}x{kernel} convolution of stride {stride}, NHWC {size}x{size}x{ins} -> {outs}",
        "conv2d_nhwc",
        (1, size, size, ins, outs, kernel, stride, kernel // 2),
    )
    for number, (size, ins, outs, kernel, stride) in enumerate(
        [
            (224, 3, 64, 7, 2),
            (56, 64, 64, 3, 1),
            (56, 64, 64, 1, 1),
            (56, 64, 128, 3, 2),
            (56, 64, 128, 1, 2),
            (28, 128, 128, 3, 1),
            (28, 128, 256, 3, 2),
            (28, 128, 256, 1, 2),
            (14, 256, 256, 3, 1),
        ],
        1,
    )
} | {"matmul_1024": ("matmul, 1024x1024 times 1024x1024", "matmul", (1024, 1024, 1024))}
"""The layers of the transfer experiment of "Learning to Optimize Tensor Programs" (Chen et al.,
2018, table 1 and section 6.2): what was learned of C1 to C6 is used for the others."""

METHODS = (BASELINE, "droplet", "tvm-droplet")
AS_SHIPPED = "tvm-droplet-as-shipped"
REMEASURED = "remeasured"
"""What a child process does besides a method: see run_child."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--layers", nargs="+", choices=LAYERS | RESNET, default=list(LAYERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument(
        "--before", type=Path, metavar="CHECKOUT", help="the checkout of method droplet-before"
    )
    parser.add_argument(
        "--model", type=Path, help="the cost model of method droplet-transfer: a file of pretrain"
    )
    parser.add_argument(
        "--xgb-model", type=Path, help="that of method evolutionary-transfer: a file of XGBModel"
    )
    parser.add_argument("--trials", type=int, default=128, help="measured trials of every run")
    parser.add_argument(
        "--checkpoints",
        nargs="+",
        type=int,
        help="read off here too, at 32, 40 and 64 if None",
    )
    parser.add_argument("--num-trials-per-iter", type=int, default=32, help="size of a batch")
    parser.add_argument(
        "--post-trials", type=int, help="those of --trials for PostOpt, a third if None"
    )
    parser.add_argument(
        "--builder",
        choices=("warm", "tvm"),
        default="warm",
        help="for all methods: tvm_droplet_ms.measure.WarmBuilder or TVM's LocalBuilder",
    )
    parser.add_argument("--rounds", type=int, default=10, help="of re-measuring the winners")
    parser.add_argument("--out", type=Path, default=Path("compare"), help="where results are kept")
    parser.add_argument(
        "--show-as-shipped", action="store_true", help="run post_optimization=True once, untouched"
    )
    parser.add_argument("--table-only", action="store_true", help="run nothing, print the tables")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    # What a child process is to do: a layer, a seed, and a method, AS_SHIPPED or REMEASURED.
    parser.add_argument("--run-one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.post_trials is None:
        args.post_trials = args.trials // 3
    if not 0 < args.post_trials < args.trials:
        parser.error(f"--post-trials is {args.post_trials}; expected 1 to --trials - 1")
    if args.checkpoints is None:
        args.checkpoints = [trials for trials in (32, 40, 64) if trials < args.trials]
    if any(not 0 < checkpoint <= args.trials for checkpoint in args.checkpoints):
        parser.error(f"--checkpoints is {args.checkpoints}; expected 1 to --trials each")
    args.checkpoints = sorted({*args.checkpoints, args.trials})
    if args.before:
        if not (args.before / "tvm_droplet_ms").is_dir():
            parser.error(f"--before is {args.before}, which has no folder tvm_droplet_ms")
        args.methods.append(BEFORE)
    if args.model:
        if not args.model.is_file():
            parser.error(
                f"--model is {args.model}, which is no file; droplet-ms pretrain makes one"
            )
        args.methods.append(TRANSFER)
    if args.xgb_model:
        if not args.xgb_model.is_file():
            parser.error(f"--xgb-model is {args.xgb_model}, which is no file")
        args.methods.append(XGB_TRANSFER)
    return args


def layer_of(name: str) -> tuple[str, str, tuple[int, ...]]:
    """What a layer is, and what makes it; see LAYERS."""
    return (LAYERS | RESNET)[name]


def model_of(args: argparse.Namespace, method: str) -> Path | None:
    """The cost model that a method begins with; None for TVM's, which knows nothing."""
    models: dict[str, Path] = {TRANSFER: args.model, XGB_TRANSFER: args.xgb_model}
    return models.get(method)


def settings_of(args: argparse.Namespace, layer: str) -> dict[str, Any]:
    """What must be equal for a finished run to count as a run of this command."""
    return {
        "layer": [layer_of(layer)[1], *layer_of(layer)[2]],
        "trials": args.trials,
        "num_trials_per_iter": args.num_trials_per_iter,
        "post_trials": args.post_trials,
        "builder": args.builder,
    }


def result_path(args: argparse.Namespace, layer: str, seed: int, task: str) -> Path:
    whole_layer = task in (AS_SHIPPED, REMEASURED)
    return Path(args.out, f"{layer}-{task}.json" if whole_layer else f"{layer}-{seed}-{task}.json")


def read_result(path: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """A finished run, None if there is none; SystemExit if it was made with other settings."""
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    if result["settings"] != settings:
        raise SystemExit(
            f"{path} was made with other settings, {result['settings']}, than this command's, "
            f"{settings}: give the same options again, or another --out"
        )
    return result


def write_result(path: Path, result: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result))
    partial.replace(path)


def main() -> int:
    args = parse_arguments()
    if args.run_one:
        run_child(args, args.run_one[0], int(args.run_one[1]), args.run_one[2])
        return 0
    failures = 0
    if not args.table_only:
        # A stopped parent must not leave a child behind: subprocess.run kills it on an exception.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
        args.out.mkdir(parents=True, exist_ok=True)
        failures = run_all(args)
    print_report(args)
    return 1 if failures else 0


def run_all(args: argparse.Namespace) -> int:
    """Run what is not finished yet; return how many children failed."""
    failures = 0
    if args.show_as_shipped:
        layer = "dense" if "dense" in args.layers else args.layers[0]
        failures += not run_process(args, layer, args.seeds[0], AS_SHIPPED)
    for i, layer in enumerate(args.layers):
        for j, seed in enumerate(args.seeds):
            first = (i + j) % len(args.methods)
            for method in args.methods[first:] + args.methods[:first]:
                failures += not run_process(args, layer, seed, method)
        failures += not run_process(args, layer, args.seeds[0], REMEASURED)
    return failures


def run_process(args: argparse.Namespace, layer: str, seed: int, task: str) -> bool:
    """Run one task in a process of its own unless it is finished; return whether it is now."""
    path = result_path(args, layer, seed, task)
    done = read_result(path, settings_of(args, layer))
    if done and task == REMEASURED:
        names = [name for name, _ in winners_of(args, layer)]
        done = done if (done["names"], done["rounds"]) == (names, args.rounds) else None
    if done:
        print(f"{path}: finished before", flush=True)
        return True
    log = path.with_suffix(".log")
    start = time.time()
    print(f"{time.strftime('%H:%M:%S')} {path.stem} ...", end=" ", flush=True)
    command = [sys.executable, __file__, *sys.argv[1:], "--run-one", layer, str(seed), task]
    environment = os.environ.copy()
    if task == BEFORE:
        environment["PYTHONPATH"] = str(args.before.resolve())
    with log.open("w") as output:
        status = subprocess.run(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment
        ).returncode
    last = (log.read_text().strip().splitlines() or ["it printed nothing"])[-1]
    if status != 0:
        print(f"FAILED with exit status {status}, see {log}: {last}", flush=True)
        return False
    print(f"{last}, {time.time() - start:.0f} s", flush=True)
    return True


def load_runs(args: argparse.Namespace, layer: str) -> Results:
    results = Results()
    for method in args.methods:
        for seed in args.seeds:
            path = result_path(args, layer, seed, method)
            run = read_result(path, settings_of(args, layer))
            if run:
                results.runs[method, seed] = run
    return results


def winners_of(args: argparse.Namespace, layer: str) -> list[tuple[list[Any], dict[str, Any]]]:
    """The winners of a layer: method, seed, checkpoint and when the run ended, and the trial."""
    return [
        ([method, seed, checkpoint, run["finished"]], trial)
        for (method, seed), run in load_runs(args, layer).runs.items()
        for checkpoint in args.checkpoints
        if (trial := best_trial(run["trials"], checkpoint))
    ]


def print_report(args: argparse.Namespace) -> None:
    layers = {}
    as_shipped = []
    environments = []
    for layer in args.layers:
        settings = settings_of(args, layer)
        layers[layer] = results = load_runs(args, layer)
        environments += [run["environment"] for run in results.runs.values()]
        remeasured = read_result(result_path(args, layer, 0, REMEASURED), settings)
        if remeasured:
            for name, kernel in zip(remeasured["names"], remeasured["kernels"], strict=True):
                results.kernels[tuple(name[:3])] = kernel
        shipped = read_result(result_path(args, layer, 0, AS_SHIPPED), settings)
        if shipped:
            as_shipped.append(as_shipped_report(shipped))
    print()
    for environment in dict.fromkeys(environments):
        print(environment)
    print(
        f"{args.trials} trials a run in batches of {args.num_trials_per_iter}, builder "
        f"{args.builder}, {args.post_trials} of tvm-droplet's trials for PostOpt; a winner's time "
        f"is the median of {args.rounds} rounds.\n"
    )
    table = (args.methods, args.seeds, args.checkpoints, args.markdown)
    for layer, results in layers.items():
        print(layer_report(layer, layer_of(layer)[0], results, *table) + "\n")
    print(summary_report(layers, *table) + "\n")
    for text in as_shipped:
        print(text + "\n")
    print(LEGEND)


def run_child(args: argparse.Namespace, layer: str, seed: int, task: str) -> None:
    """What a child process does: one run, or the re-measuring of one layer's winners."""
    import _compare_run

    from tvm_droplet_ms.measure import fast_start

    # The first TuneContext of a process imports these. No method's clock is to run meanwhile.
    start = time.perf_counter()
    if task == AS_SHIPPED:
        importlib.import_module("tvm.s_tir.tensor_intrin")
    else:
        fast_start()
    import_secs = time.perf_counter() - start
    path = result_path(args, layer, seed, task)
    settings = settings_of(args, layer)
    if task == REMEASURED:
        winners = winners_of(args, layer)
        traces = [trial["trace"] for _, trial in winners]
        kernels = _compare_run.remeasure(settings, traces, args.rounds)
        result = {"names": [name for name, _ in winners], "kernels": kernels, "rounds": args.rounds}
        print(f"{len(kernels)} winners re-measured")
    else:
        work_dir = args.out / "work" / path.stem
        result = _compare_run.tune(settings, seed, task, work_dir, model_of(args, task))
        best_secs = min(map(trial_secs, result["trials"]), default=math.inf)
        print(f"{len(result['trials'])} trials, best recorded {best_secs * 1e6:.1f} us")
    result |= {"layer": layer, "settings": settings, "finished": time.time()}
    write_result(path, result | {"import_secs": import_secs})


if __name__ == "__main__":
    sys.exit(main())

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
"""Seconds to build and run a batch: TVM's LocalBuilder and LocalRunner beside fast_measure.

    python examples/measure_batches.py --out batches              # about 20 minutes on 2 cores
    python examples/measure_batches.py --out batches --load 2     # while 2 processes only count
    python examples/measure_batches.py --out batches --overlap    # timings with overlap off and on
    python examples/measure_batches.py --out batches --agree      # LocalRunner's times beside ours

Proposing is not measured: for each layer, candidates are sampled once from its design space, at
random, as the first batches of MetaSchedule's search are, and kept in ``--out``. Then each method
builds and runs the same candidates in a process of its own, one batch of each size, with its
defaults; the methods take turns in going first, and the sizes in being run upwards and downwards.
A batch of 2 before them, which starts the workers, is reported apart. What was built is deleted
after each batch, as TVM's ``RemoveBuildArtifact`` does.

``--load N`` does the same on busy cores. ``--overlap`` compares ``fast_measure(target)`` with
``fast_measure(target, overlap=True)``: one batch for each mode in turns, ``--repeats`` times, so
that what two passes of one mode differ by is the noise that the other mode is judged against.
``--agree`` builds a batch once and has LocalRunner and PromptRunner time it in turns, in one
process.

A finished measurement is a file in ``--out`` and is not repeated: after a stop, the same command
goes on. After a change of the code, use another ``--out``.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from _measure_process import busy_processes, child_task, finish, make_parser, run_or_read
from _measure_report import Runs, agree_report, batches_report, overlap_report
from compare_live import LAYERS

MODES = {
    "batches": (list(LAYERS), [8, 16, 32, 64], 1),
    "load": (["conv2d"], [8, 16], 1),
    "overlap": (list(LAYERS), [32], 5),
    "agree": (list(LAYERS), [32], 5),
}
"""Layers, sizes and repeats of each mode unless told."""


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(__doc__, "batches")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--load", type=int, default=0, metavar="N", help="with N busy processes")
    mode.add_argument("--overlap", action="store_true", help="compare overlap off and on")
    mode.add_argument("--agree", action="store_true", help="compare the two runners' times")
    parser.add_argument("--layers", nargs="+", choices=LAYERS, help="all, conv2d with --load")
    parser.add_argument(
        "--sizes", nargs="+", type=int, help="8 16 32 64; 8 16 with --load; 32 with the others"
    )
    parser.add_argument("--repeats", type=int, help="1, with --overlap and --agree 5")
    parser.add_argument(
        "--same-timing",
        action="store_true",
        help="time ours as long as TVM's default does, 100 ms, instead of as fast_measure does",
    )
    parser.add_argument("--candidates", type=int, default=128, help="sampled for each layer")
    parser.add_argument("--seed", type=int, default=0, help="of the sampling")
    args = parser.parse_args()
    args.mode = "load" if args.load else "overlap" if args.overlap else "agree" * args.agree
    args.mode = args.mode or "batches"
    layers, sizes, repeats = MODES[args.mode]
    args.layers = args.layers or layers
    args.sizes = sorted(set(args.sizes or sizes))
    args.repeats = args.repeats or repeats
    if args.mode in ("overlap", "agree") and len(args.sizes) != 1:
        parser.error(f"--sizes is {args.sizes}; expected one with --{args.mode}")
    if args.mode == "overlap" and args.repeats < 2:
        parser.error(f"--repeats is {args.repeats}; expected 2 or more with --overlap")
    if sum(args.sizes) + 2 > args.candidates:
        parser.error(f"--candidates is {args.candidates}; expected {sum(args.sizes) + 2} or more")
    return args


def layer_settings(args: argparse.Namespace, layer: str, task: str, **more: Any) -> dict[str, Any]:
    """What a child process needs to know, and a finished measurement is recognised by."""
    return {
        "task": task,
        "name": layer,
        "layer": [LAYERS[layer][1], *LAYERS[layer][2]],
        "candidates": args.candidates,
        "seed": args.seed,
        **more,
    }


def main() -> int:
    task = child_task()
    if task:
        run_child(task)
        return 0
    args = parse_arguments()
    for layer in args.layers:
        settings = layer_settings(args, layer, "sample")
        path = args.out / f"{layer}-candidates.json"
        if not run_or_read(__file__, path, settings, args.table_only) and not args.table_only:
            return 1
    failures = 0
    if args.mode == "agree":
        agreed = measure_agreement(args)
        failures += len(args.layers) - len(agreed)
        environments = [result["environment"] for result in agreed.values()]
        report = agree_report(agreed, args.markdown)
    else:
        methods = ["ours", "overlap"] if args.mode == "overlap" else ["tvm", "ours"]
        with busy_processes(0 if args.table_only else args.load):
            runs = measure_batches(args, methods)
        failures += len(args.layers) * len(methods) * args.repeats - len(runs)
        environments = [run["environment"] for run in runs.values()]
        make_report = overlap_report if args.mode == "overlap" else batches_report
        report = make_report(runs, args.layers, args.markdown)
    print()
    print("\n".join(dict.fromkeys(environments)))
    if args.same_timing:
        print("ours with the evaluator configuration of TVM's default")
    if args.load:
        print(f"while {args.load} processes only counted")
    print(f"\n{report}")
    return 1 if failures and not args.table_only else 0


def measure_batches(args: argparse.Namespace, methods: list[str]) -> Runs:
    """All runs that there are, after making those that are missing."""
    runs: Runs = {}
    for i, layer in enumerate(args.layers):
        for repeat in range(args.repeats):
            turn = (i + repeat) % 2
            for method in methods[:: -1 if turn else 1]:
                settings = layer_settings(
                    args,
                    layer,
                    "measure",
                    method=method,
                    sizes=args.sizes[:: -1 if turn else 1],
                    repeat=repeat,
                    load=args.load,
                    # TVM's own is the same in both.
                    same_timing=args.same_timing and method != "tvm",
                )
                kind = "-same-timing" if settings["same_timing"] else ""
                name = f"{args.mode}{args.load or ''}-{layer}-{method}{kind}-{repeat}.json"
                run = run_or_read(__file__, args.out / name, settings, args.table_only)
                if run:
                    runs[layer, method, repeat] = run
    return runs


def measure_agreement(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The results of --agree by layer."""
    results = {}
    for layer in args.layers:
        settings = layer_settings(
            args,
            layer,
            "agree",
            sizes=args.sizes,
            repeats=args.repeats,
            same_timing=args.same_timing,
        )
        name = f"agree-{layer}{'-same-timing' if args.same_timing else ''}.json"
        result = run_or_read(__file__, args.out / name, settings, args.table_only)
        if result:
            results[layer] = result
    return results


def run_child(task: dict[str, Any]) -> None:
    """What a child process does."""
    import _measure_batch

    settings = task["settings"]
    if settings["task"] == "sample":
        finish(_measure_batch.sample(settings))
        return
    path = Path(task["out"], f"{settings['name']}-candidates.json")
    candidates = _measure_batch.load_candidates(path)
    work = _measure_batch.agree if settings["task"] == "agree" else _measure_batch.measure
    finish(work(settings, candidates))


if __name__ == "__main__":
    sys.exit(main())

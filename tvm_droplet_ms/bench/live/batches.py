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

    python -m tvm_droplet_ms.bench.live.batches --out batches              # 20 minutes on 2 cores
    python -m tvm_droplet_ms.bench.live.batches --out batches --load 2     # on busy cores
    python -m tvm_droplet_ms.bench.live.batches --out batches --overlap    # overlap off and on
    python -m tvm_droplet_ms.bench.live.batches --out batches --agree      # the two runners' times

Proposing is not measured: the candidates of each layer are sampled once from its design space, at
random, and kept in ``--out``. Each method then builds and runs the same candidates in a process of
its own, one batch of each size, with its defaults. The methods take turns in going first, and the
sizes run upwards and downwards. A first batch of 2, which starts the workers, is reported apart.
Artefacts are deleted after each batch, as TVM's ``RemoveBuildArtifact`` does.

``--load N`` does the same while N other processes keep the cores busy. ``--overlap`` compares
``fast_measure(target)`` with ``fast_measure(target, overlap=True)``: one batch for each mode in
turns, ``--repeats`` times. Two passes of one mode give the noise that the other mode is judged
against. ``--agree`` builds a batch once, and LocalRunner and PromptRunner time it in turns in one
process.

A finished measurement is a file in ``--out`` and is not repeated: after a stop, the same command
goes on.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .batch_report import Runs, agree_report, batches_report, overlap_report
from .layers import ALL_LAYERS, LAYERS
from .store import ResultStore, make_parser, make_store

MODES = {
    "batches": (list(LAYERS), [8, 16, 32, 64], 1),
    "load": (["conv2d"], [8, 16], 1),
    "overlap": (list(LAYERS), [32], 5),
    "agree": (list(LAYERS), [32], 5),
}
"""The layers, sizes and repeats of each mode where the command names none."""


def parse_arguments() -> argparse.Namespace:
    """Parse and check the command line."""
    parser = make_parser(__doc__, "batches")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--load", type=int, default=0, metavar="N", help="with N busy processes")
    mode.add_argument("--overlap", action="store_true", help="compare overlap off and on")
    mode.add_argument("--agree", action="store_true", help="compare the two runners' times")
    parser.add_argument("--layers", nargs="+", choices=ALL_LAYERS, help="eight, conv2d with --load")
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
    named = {"load": args.load, "overlap": args.overlap, "agree": args.agree}
    args.mode = next((mode for mode, given in named.items() if given), "batches")
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
    """The settings of a child process."""
    return {
        "task": task,
        "layer": layer,
        "candidates": args.candidates,
        "seed": args.seed,
        **more,
    }


def main() -> int:
    """Run missing measurements and print the tables; return 1 if one failed."""
    args = parse_arguments()
    store = make_store(args)
    for layer in args.layers:
        settings = layer_settings(args, layer, "sample")
        sampled = store.get(f"{layer}-candidates", "batch_measuring", settings)
        if sampled is None and not args.report:
            return 1
    if args.mode == "agree":
        agreed = measure_agreement(args, store)
        missing = len(args.layers) - len(agreed)
        environments = [result["environment"] for result in agreed.values()]
        report = agree_report(agreed, args.markdown)
    else:
        methods = ["ours", "overlap"] if args.mode == "overlap" else ["tvm", "ours"]
        with busy_processes(0 if args.report else args.load):
            runs = measure_batches(args, store, methods)
        missing = len(args.layers) * len(methods) * args.repeats - len(runs)
        environments = [run["environment"] for run in runs.values()]
        make_report = overlap_report if args.mode == "overlap" else batches_report
        report = make_report(runs, args.layers, args.markdown)
    print("\n" + "\n".join(dict.fromkeys(environments)))
    if args.same_timing:
        print("ours with the evaluator configuration of TVM's default")
    if args.load:
        print(f"while {args.load} other processes keep the cores busy")
    print(f"\n{report}")
    return 1 if missing and not args.report else 0


def measure_batches(args: argparse.Namespace, store: ResultStore, methods: list[str]) -> Runs:
    """Read all runs, after making those that are missing."""
    runs: Runs = {}
    for i, layer in enumerate(args.layers):
        for repeat in range(args.repeats):
            order = -1 if (i + repeat) % 2 else 1
            for method in methods[::order]:
                settings = layer_settings(
                    args,
                    layer,
                    "measure",
                    method=method,
                    sizes=args.sizes[::order],
                    repeat=repeat,
                    load=args.load,
                    # TVM's own is the same in both.
                    same_timing=args.same_timing and method != "tvm",
                )
                kind = "-same-timing" if settings["same_timing"] else ""
                name = f"{args.mode}{args.load or ''}-{layer}-{method}{kind}-{repeat}"
                run = store.get(name, "batch_measuring", settings)
                if run is not None:
                    runs[layer, method, repeat] = run
    return runs


def measure_agreement(args: argparse.Namespace, store: ResultStore) -> dict[str, dict[str, Any]]:
    """The results of ``--agree`` by layer."""
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
        name = f"agree-{layer}{'-same-timing' if args.same_timing else ''}"
        result = store.get(name, "batch_measuring", settings)
        if result is not None:
            results[layer] = result
    return results


_BUSY_LOOP = """
import os
while os.getppid() == {parent}:
    for _ in range(10**6):
        pass
"""


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep cores busy with some processes that only count, until the context ends."""
    command = [sys.executable, "-c", _BUSY_LOOP.format(parent=os.getpid())]
    processes = []
    try:
        for _ in range(count):
            processes.append(subprocess.Popen(command))
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())

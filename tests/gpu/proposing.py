# SPDX-License-Identifier: Apache-2.0
"""The CPU seconds of proposing for a GPU, imports included. Builds and runs nothing.

``python tests/gpu/proposing.py dense float32 droplet --trials 64`` searches a workload of
``acceptance.py`` with made-up times, and prints a row; with ``evolutionary`` by TVM's own search.
"""

import argparse
import resource
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from acceptance import TARGETS, WORKLOADS, context_of
from conformance.driving import drive
from conformance.objectives import rugged, timed

from tvm_droplet_ms.compat import fast_tune_contexts


def main(argv: Sequence[str] | None = None) -> None:
    """Search, and print the row."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("dtype")
    parser.add_argument("strategy", choices=("droplet", "evolutionary"))
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--target", default=TARGETS[-1])
    args = parser.parse_args(argv)
    strategy = None if args.strategy == "droplet" else args.strategy
    with fast_tune_contexts():
        context = context_of(args.workload, args.dtype, args.target, strategy)
        driven = drive(context, timed(rugged), max_trials=args.trials, num_trials_per_iter=16)
    used = resource.getrusage(resource.RUSAGE_SELF)
    secs, trials = used.ru_utime + used.ru_stime, len(driven.trials)
    words = f"{args.workload} | {args.dtype} | {args.strategy} | {trials}"
    print(f"| {words} | {secs:.1f} | {secs / trials:.2f} |", flush=True)


if __name__ == "__main__":
    main()

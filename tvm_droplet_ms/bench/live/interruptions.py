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
"""Interrupts runs of ``droplet-ms tune`` at random moments, and looks at what is left.

``python -m tvm_droplet_ms.bench.live.interruptions --out DIR`` tunes a small kernel many times, in
a process that gets SIGINT, SIGTERM or SIGKILL, and resumes it until it ends. No module may be
recorded twice, the records must be exactly the budget, and a kill may lose one batch. Results are
JSON lines; the same command goes on.
"""

import argparse
import signal
import sys
import time
from pathlib import Path
from statistics import median

from .interrupted_run import interrupted_run, tune_arguments
from .interruption_report import Run, faults_of, plan, read_rows, summary, write_row

KERNEL = "tvm_droplet_ms.bench.live.interrupted_child:small_matmul"

ATTEMPTS = 5
"""A run may end before its signal; then another moment is tried, so many times."""


def main() -> int:
    """Run the measurement; the status is 1 where something is not as it has to be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--runs", type=int, default=60, help="interrupted runs")
    parser.add_argument("--uninterrupted", type=int, default=12, help="runs to compare with")
    parser.add_argument("--trials", type=int, default=32, help="trials of a run")
    parser.add_argument("--kernel", default=KERNEL, help="as droplet-ms tune takes it")
    parser.add_argument("--seed", type=int, default=0, help="seed of moments and searches")
    options = parser.parse_args()
    # So that the process that is being measured is ended too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # A shell's background job ignores it, and so would the runs.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    options.out.mkdir(parents=True, exist_ok=True)
    plain = [_uninterrupted(options, number) for number in range(options.uninterrupted)]
    longest = median(run.moment for run in plain) if plain else 20.0
    planned = plan(options.seed, options.runs, ATTEMPTS, longest)
    runs = [
        _interrupted(options, number, name, attempts)
        for number, (name, attempts) in enumerate(planned)
    ]
    print(summary(runs, plain))
    return int(any(list(faults_of(run)) for run in [*runs, *plain]))


def _uninterrupted(options: argparse.Namespace, number: int) -> Run:
    """A run to the end; its moment is how long it took."""
    key = f"uninterrupted-{number}"
    found = read_rows(options.out / "runs.jsonl").get(key)
    if found is not None:
        return found
    started = time.monotonic()
    run = _run(options, key, number, "", 0.0)
    run = Run(**{**vars(run), "moment": time.monotonic() - started})
    return _keep(options, key, run)


def _interrupted(options: argparse.Namespace, number: int, name: str, attempts: list[float]) -> Run:
    key = f"interrupted-{number}"
    found = read_rows(options.out / "runs.jsonl").get(key)
    if found is not None:
        return found
    for moment in attempts:
        run = _run(options, key, number, name, moment)
        if run.signal:
            break
    return _keep(options, key, run)


def _run(options: argparse.Namespace, key: str, number: int, name: str, moment: float) -> Run:
    work_dir = options.out.resolve() / "work" / key
    arguments = tune_arguments(options.kernel, options.trials, options.seed + number, work_dir)
    return interrupted_run(arguments, work_dir, options.trials, name, moment)


def _keep(options: argparse.Namespace, key: str, run: Run) -> Run:
    write_row(options.out / "runs.jsonl", key, run)
    faults = "; ".join(faults_of(run)) or "as it has to be"
    print(
        f"{key}: {run.signal or 'no signal'} at {run.moment:.2f} s, {run.before} records then, "
        f"{run.records} at the end, {run.lost} lost: {faults}",
        file=sys.stderr,
        flush=True,
    )
    return run


if __name__ == "__main__":
    sys.exit(main())

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
"""One run of ``droplet-ms tune`` that is interrupted and resumed, and what is left of it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tvm_ffi import structural_hash

from tvm.s_tir import Schedule

from ...compat import fast_tune_contexts
from ...kernel_tuning.records import read_records
from ...measure.failures import is_unmeasured
from .interrupted_child import BATCH, MEASURED
from .interruption_report import Run

PATIENCE_SECS = 600.0
"""The most seconds of a process that is not interrupted."""

MOST_RESUMES = 4
"""After so many resumed processes a run has not ended."""

_CHILD = "tvm_droplet_ms.bench.live.interrupted_child"


@dataclass(frozen=True)
class Ended:
    """How a process ended.

    Parameters
    ----------
    status : int
        Its exit status; negative for the number of a signal that ended it.
    was_interrupted : bool
        Whether it was still running at the moment of its signal.
    output : str
        Its standard output.
    """

    status: int
    was_interrupted: bool
    output: str


def tune_arguments(kernel: str, budget: int, seed: int, work_dir: Path) -> list[str]:
    """The command whose runs are interrupted."""
    options = ["--trials", str(budget), "--seed", str(seed), "--work-dir", str(work_dir)]
    return ["tune", kernel, *options, "--minutes", "60", "--quiet", "--json"]


def interrupted_run(
    arguments: Sequence[str], work_dir: Path, budget: int, name: str, moment: float
) -> Run:
    """Interrupt a run, resume it until it ends, and read what it left.

    Parameters
    ----------
    arguments : Sequence[str]
        Those of ``tune_arguments``.
    work_dir : Path
        Its directory; emptied first.
    budget : int
        Its trials.
    name : str
        The signal: "INT", as a terminal sends it, to the process and its children; "TERM" or
        "KILL", to the process alone; or "" for a run that is not interrupted.
    moment : float
        Seconds after the start of the process.
    """
    shutil.rmtree(work_dir, ignore_errors=True)
    work_dir.mkdir(parents=True)
    witness = work_dir.parent / f"{work_dir.name}.witness"
    witness.unlink(missing_ok=True)
    first = _run(arguments, witness, name, moment)
    before = _records(work_dir)
    later: list[Ended] = []
    while (later or [first])[-1].status != 0 and len(later) < MOST_RESUMES:
        # A process that ended before it kept its command is run again, as a user would.
        is_kept = (work_dir / "command.json").exists()
        resume = ["resume", str(work_dir)] if is_kept else arguments
        later.append(_run(resume, witness))
    last = (later or [first])[-1]
    modules = recorded_modules(work_dir)
    measured, batch = read_witness(witness)
    return Run(
        signal=name if first.was_interrupted else "",
        moment=moment,
        status=first.status,
        later=[process.status for process in later],
        budget=budget,
        before=before,
        records=len(modules),
        repeated=len(modules) - len(set(modules)),
        lost=measured - len(modules),
        batch=batch,
        latency_us=_latency(last),
    )


def recorded_modules(work_dir: Path) -> list[int]:
    """The structural hashes of the modules that the records build, of all that were measured."""
    found = []
    with fast_tune_contexts():
        for _, record in read_records(work_dir):
            if is_unmeasured(record.run_secs):
                continue
            schedule = Schedule(record.workload.mod)
            record.trace.apply_to_schedule(schedule, remove_postproc=False)
            found.append(int(structural_hash(schedule.mod)))
    return found


def read_witness(path: Path) -> tuple[int, int]:
    """The candidates that all processes of a run measured, and their largest batch."""
    lines = path.read_text().splitlines() if path.exists() else []
    sizes = [int(line.split()[1]) for line in lines if line.startswith(BATCH)]
    return Counter(lines)[MEASURED], max(sizes, default=0)


def _records(work_dir: Path) -> int:
    """The whole lines of a database, which may have a torn end."""
    path = work_dir / "database_tuning_record.json"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _latency(ended: Ended) -> float | None:
    try:
        return float(json.loads(ended.output)["microseconds"]["median"])
    except (ValueError, LookupError, TypeError):
        return None


def _run(arguments: Sequence[str], witness: Path, name: str = "", moment: float = 0.0) -> Ended:
    output, errors = (witness.with_suffix(suffix) for suffix in (".out", ".err"))
    with output.open("w") as out, errors.open("a") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", _CHILD, str(witness), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=_take_signals,
        )
        try:
            was_interrupted = bool(name) and _interrupt(process, name, moment)
            status = process.wait(PATIENCE_SECS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return Ended(status, was_interrupted, output.read_text())


def _interrupt(process: "subprocess.Popen[bytes]", name: str, moment: float) -> bool:
    """Whether the process was still running."""
    try:
        process.wait(moment)
        return False
    except subprocess.TimeoutExpired:
        pass
    if name == "INT":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.send_signal(signal.Signals[f"SIG{name}"])
    return True


def _take_signals() -> None:
    """A shell has its background jobs ignore Ctrl-C, and their children inherit that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)

# SPDX-License-Identifier: Apache-2.0
"""Tune on a GPU for some minutes: ours beside TVM's, then random schedules for a prior.

Each part runs in a separate process with a time limit, so that a hang or a crash costs only that
part. Each row is written to ``OUT/rows.jsonl`` at once. ``OUT/databases.tar.gz`` has the databases
of all parts and is rewritten after each part.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from .first_kernel import CHOSEN, COMPILERS, MODE
from .rows import Rows, card, summary

PARTS: Sequence[tuple[str, str, float]] = (
    ("dense", "droplet", 95),
    ("dense", "evolutionary", 80),
    ("conv2d", "droplet", 80),
    ("conv2d", "evolutionary", 80),
    ("dense_fp16", "droplet", 85),
    ("dense_fp16", "evolutionary", 85),
)
"""Workload, strategy, and time limit in seconds. On an H200, 64 trials of the matrix product took
89 s, and 48 trials of the evolutionary search took 60 s."""

FIRST_SECS = 60.0
WINNER_SECS = 60.0
LEAST_SECS = 10.0
RANDOM_LEAST = 15.0
RANDOM = ("dense", "conv2d")
CLOSING_SECS = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the parts. Returns 1 if no kernel ran."""
    return Run(parsed(argv)).run()


def parsed(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the options and create their folders."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=None, help="default: a temporary folder")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--target", default="device", help="default: ask the card")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=None, help="build processes")
    parser.add_argument(
        "--no-comparison", action="store_true", help="for a stand-in whose kernels do nothing"
    )
    parser.add_argument("--parts", nargs="+", default=None, help="such as dense-droplet random")
    args = parser.parse_args(argv)
    args.work = args.work or Path(tempfile.mkdtemp(prefix="gpu_run_"))
    for folder in (args.out, args.work):
        folder.mkdir(parents=True, exist_ok=True)
    return args


class Run:
    """The run, part by part."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._end: float = time.monotonic() + 60.0 * args.minutes
        self._rows = Rows(args.out, card())
        self._is_roomy = False
        self._common = ["--out", str(args.out), "--work", str(args.work), "--target", args.target]
        self._comparison = ["--no-comparison"] if args.no_comparison else []

    def run(self) -> int:
        """Run the parts in order."""
        if not self._first_kernel():
            self._rows.write("stopped", error="no compiler made a kernel that runs and is right")
            print("stopped: no kernel ran; see the rows of the first kernel", flush=True)
            return 1
        for workload, strategy, cap in PARTS:
            if self._is_wanted(f"{workload}-{strategy}"):
                # Reserve time for the winners, which matter more than the last part.
                cap = min(cap, self._left() - WINNER_SECS)
                self._tune(workload, strategy, cap)
        if self._is_wanted("winners"):
            command = [f"{__package__}.winners", *self._common, *self._comparison]
            self.child("winners", command, WINNER_SECS)
        if self._is_wanted("random"):
            for number, workload in enumerate(RANDOM):
                secs = self._left() / (len(RANDOM) - number)
                if secs >= RANDOM_LEAST:
                    self._tune(workload, "random", secs)
        self._rows.write("end")
        return 0

    def _is_wanted(self, part: str) -> bool:
        return self._args.parts is None or part in self._args.parts

    def _left(self) -> float:
        return self._end - CLOSING_SECS - time.monotonic()

    def _first_kernel(self) -> bool:
        """Find the first compiler whose kernels run, for use in all parts; False if none works."""
        chosen = self._args.work / CHOSEN
        chosen.unlink(missing_ok=True)
        for compiler in COMPILERS:
            command = [f"{__package__}.first_kernel", compiler, *self._common, *self._comparison]
            self.child(f"first kernel by {compiler}", command, FIRST_SECS)
            if chosen.exists():
                os.environ[MODE] = compiler
                self._is_roomy = json.loads(chosen.read_text())["roomy"]
                return True
        return False

    def _tune(self, workload: str, strategy: str, cap: float) -> None:
        args = self._args
        command = [f"{__package__}.tuned_part", workload, strategy, *self._common]
        command += ["--seed", str(args.seed), "--trials", str(args.trials)]
        command += ["--workers", str(args.workers)] if args.workers else []
        command += ["--roomy"] if self._is_roomy else []
        self.child(f"{workload}-{strategy}", command, cap)

    def child(self, part: str, command: Sequence[str], cap: float) -> None:
        """Run a module for at most `cap` seconds, and write a row about its end.

        ``part``: the name of the part. ``command``: the module and its arguments.
        """
        if cap < LEAST_SECS:
            self._rows.write("part", name=part, ended="not begun: no time left")
            return
        begun = time.monotonic()
        # In a separate session, killing the process group also ends its builders.
        child = subprocess.Popen([sys.executable, "-m", *command], start_new_session=True)
        try:
            ended = f"status {child.wait(min(cap, max(1.0, self._left())))}"
        except subprocess.TimeoutExpired:
            ended = "stopped at its cap"
            child.send_signal(signal.SIGTERM)
            try:
                child.wait(3.0)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        took = time.monotonic() - begun
        self._rows.write("part", name=part, ended=ended, cap=cap, took=took)
        print(f"{part}: {ended}, {took:.0f} s; {summary(self._args.out)}", flush=True)
        self._keep_databases()

    def _keep_databases(self) -> None:
        """Pack the databases; only a complete archive replaces the old one."""
        packed = self._args.out / "databases.tar.gz"
        unfinished = packed.with_suffix(".part")
        try:
            with tarfile.open(unfinished, "w:gz") as archive:
                for path in sorted(self._args.work.glob("*/*.json")):
                    archive.add(path, str(path.relative_to(self._args.work)))
            unfinished.replace(packed)
        except OSError as error:
            self._rows.write("part", name="databases", ended=f"not kept: {error}")


if __name__ == "__main__":
    sys.exit(main())

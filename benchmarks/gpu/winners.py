# SPDX-License-Identifier: Apache-2.0
"""The best schedules of the GPU run: compared with NumPy, and timed again in turns."""

import json
import select
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .parts import part_parser
from .rows import Rows, card, last_words
from .workloads import WORKLOADS, check_winner, time_winner

ROUNDS = 5
LIBRARY = "library"
CHECK_SECS, TIMING_SECS = 40.0, 20.0
"""The time limits, in seconds, of the check of one winner and of one timing."""


def main(argv: Sequence[str] | None = None) -> None:
    """Compare and time the winners, and write a row per winner and round."""
    parser = part_parser(__doc__)
    parser.add_argument("--no-comparison", action="store_true")
    args = parser.parse_args(argv)
    from tvm.target import Target
    from tvm_droplet_ms.measure import WorkerPool
    from tvm_droplet_ms.measure.build import prepare_to_build

    rows = Rows(args.out, card())
    pool = WorkerPool(1, prepare=partial(prepare_to_build, Target("cuda")))
    right = {}
    for workload in WORKLOADS:
        for strategy in ("droplet", "evolutionary"):
            names = {"workload": workload, "strategy": strategy}
            folder = args.work / f"{workload}-{strategy}"
            if not (folder / "database_workload.json").exists():
                continue
            library = folder / "winner.so"
            task = (folder, workload, args.target, library, not args.no_comparison)
            try:
                values = pool.submit(CHECK_SECS, check_winner, *task, fresh=True).result()
                rows.write("winner", **names, **values)
                right[workload, strategy] = library
            except Exception as error:
                rows.write("winner", **names, error=last_words(error))
    _time(rows, pool, right)
    pool.close()


def _time(rows: Rows, pool: Any, right: dict[tuple[str, str], Path]) -> None:
    """Time the correct winners and the library in turns, each in a separate process."""
    library = _Library()
    for turn in range(ROUNDS):
        for workload in dict.fromkeys(name for name, _ in right):
            for (name, strategy), path in right.items():
                if name != workload:
                    continue
                try:
                    secs = pool.submit(TIMING_SECS, time_winner, name, path, fresh=True).result()
                    found: dict[str, Any] = {"seconds": secs}
                except Exception as error:
                    found = {"error": last_words(error)}
                rows.write("again", workload=name, strategy=strategy, trial=turn, **found)
            found = library.ask(workload)
            rows.write("again", workload=workload, strategy=LIBRARY, trial=turn, **found)
    library.close()


class _Library:
    """The process that times PyTorch's libraries; see ``library.py``."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", f"{__package__}.library"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True
        )

    def ask(self, workload: str) -> dict[str, Any]:
        """Return the seconds of a workload, or the error."""
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None and answers is not None
        if self._process.poll() is not None:
            return {"error": "the library's process has ended"}
        try:
            questions.write(workload + "\n")
            questions.flush()
            if not select.select([answers], [], [], TIMING_SECS)[0]:
                self.close()
                return {"error": f"no answer in {TIMING_SECS:g} s"}
            answer: dict[str, Any] = json.loads(answers.readline() or "{}")
        except (OSError, ValueError) as error:
            return {"error": last_words(error)}
        return answer or {"error": "the library's process ended"}

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The best schedules of the GPU run: compared with NumPy, and timed again in turns."""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .first_kernel import run_built
from .rows import Rows, card, last_words
from .target import gpu_target
from .workloads import WORKLOADS, make_module

ROUNDS = 5
LIBRARY = "library"


def main(argv: Sequence[str] | None = None) -> None:
    """Compare and time; a row for each winner and round."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--target", default="device")
    parser.add_argument("--no-comparison", action="store_true")
    args = parser.parse_args(argv)
    rows, target = Rows(args.out, card()), gpu_target(args.target)
    built = {}
    for workload in WORKLOADS:
        for strategy in ("droplet", "evolutionary"):
            names = {"workload": workload, "strategy": strategy}
            folder = args.work / f"{workload}-{strategy}"
            if not (folder / "database_workload.json").exists():
                continue
            try:
                module = _build_best(folder, workload, target)
                values = run_built(workload, module, compares=not args.no_comparison)
                rows.write("winner", **names, **values)
                built[workload, strategy] = module
            except Exception as error:
                rows.write("winner", **names, error=last_words(error))
    _time(rows, built)


def _build_best(folder: Path, workload: str, target: Any) -> Any:
    from tvm.s_tir import meta_schedule as ms

    from ....measure.build import build_scheduled

    database = ms.database.JSONDatabase(
        str(folder / "database_workload.json"), str(folder / "database_tuning_record.json")
    )
    schedule = database.query_schedule(make_module(workload), target, "main")
    if schedule is None:
        raise RuntimeError(f"the database in {folder} holds no schedule of {workload}")
    return build_scheduled(schedule.mod, target)


def _time(rows: Rows, built: dict[tuple[str, str], Any]) -> None:
    import tvm

    from .workloads import inputs, output_type

    device = tvm.cuda(0)
    library = _start_library()
    evaluators = {}
    for (workload, strategy), module in built.items():
        arrays = [tvm.runtime.tensor(value, device) for value in inputs(workload)]
        arrays.append(tvm.runtime.empty(_shape(workload), output_type(workload), device))
        timer = module.time_evaluator("main", device, number=10, repeat=1, min_repeat_ms=50)
        evaluators[workload, strategy] = (timer, arrays)
    for turn in range(ROUNDS):
        for workload in dict.fromkeys(name for name, _ in evaluators):
            for (name, strategy), (timer, arrays) in evaluators.items():
                if name == workload:
                    secs = float(timer(*arrays).mean)
                    rows.write("again", workload=name, strategy=strategy, trial=turn, seconds=secs)
            rows.write(
                "again", workload=workload, strategy=LIBRARY, trial=turn, **_ask(library, workload)
            )
    library.kill()
    library.wait()


def _shape(workload: str) -> Sequence[int]:
    """The shape of the output; the convolution keeps height and width."""
    arguments = WORKLOADS[workload].arguments
    if WORKLOADS[workload].function == "matmul":
        return arguments[:2]
    batch, height, width, _, outputs, *_ = arguments
    return (batch, height, width, outputs)


def _start_library() -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", f"{__package__}.library"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


def _ask(library: "subprocess.Popen[str]", workload: str) -> dict[str, Any]:
    assert library.stdin is not None and library.stdout is not None
    try:
        library.stdin.write(workload + "\n")
        library.stdin.flush()
        answer: dict[str, Any] = json.loads(library.stdout.readline() or "{}")
    except (OSError, ValueError) as error:
        return {"error": last_words(error)}
    return answer or {"error": "the library's process ended"}


if __name__ == "__main__":
    main()

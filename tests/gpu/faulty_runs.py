# SPDX-License-Identifier: Apache-2.0
"""Measures one kernel several times on the stand-in driver, and checks it, with faults.

``python faulty_runs.py FOLDER KIND:LAUNCH...`` prints a line of JSON for each fault: the errors of
the candidates, None for those that were timed; the processes that allocated for them; and the
seconds that the batch and the runner's end took. Then a line for the check of a kernel that
computes nothing, and one for each kind: the verdict of a check whose first process meets it, and
the words where the second one does too. It needs the stand-in on LD_LIBRARY_PATH.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import tvm_ffi

import tvm
from tvm import IRModule, te
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.arg_info import TensorInfo
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig, RunnerInput
from tvm.target import Target
from tvm_droplet_ms.measure import PromptRunner
from tvm_droplet_ms.measure.allocation import allocate_safely, save_arrays
from tvm_droplet_ms.tuning.kernel.check import verification
from tvm_droplet_ms.tuning.kernel.check.arguments import Argument

CANDIDATES = 4
TIMEOUT_SECS, CHECK_SECS = 3.0, 2.0
ONE_CALL = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=0)


def compiled(_code: str) -> bytes:
    """A module that the stand-in takes for a compiled kernel."""
    return b"\x7fELF" + bytes(60)


def build(path: str) -> None:
    """A kernel that adds 1 to 64 numbers."""
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="b")
    schedule = Schedule(te.create_prim_func([a, b]).with_attr("global_symbol", "main"))
    block = schedule.get_sblock("b")
    for loop, axis in zip(
        schedule.split(schedule.get_loops(block)[0], [2, 32]), ("blockIdx.x", "threadIdx.x")
    ):
        schedule.bind(loop, axis)
    tvm_ffi.register_global_func("tvm_callback_cuda_compile", compiled, override=True)
    with Target("nvidia/nvidia-h100", host="llvm") as target:
        tvm.tirx.build(IRModule({"main": schedule.mod["main"]}), target).export_library(path)


class NotingAllocation:
    """Allocates, and notes the process in a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __call__(self, *arguments):
        with open(self.path, "a") as file:
            file.write(f"{os.getpid()}\n")
        return allocate_safely(*arguments)


def run(folder: Path, path: str, fault: str) -> None:
    """Measure the kernel, with a fault: its kind, and the launch that it comes at."""
    processes = folder / f"{fault}.processes"
    os.environ["STAND_IN_FAULT"] = f"{fault}:{folder / fault}.fired"
    runner = PromptRunner(
        timeout_sec=TIMEOUT_SECS,
        evaluator_config=ONE_CALL,
        near_best_repeats=1,
        f_alloc_argument=NotingAllocation(processes),
    )
    begun = time.monotonic()
    info = [TensorInfo("float32", (64,))] * 2
    futures = runner.run([RunnerInput(path, "cuda", info)] * CANDIDATES)
    errors = [future.result().error_msg for future in futures]
    runner.close()
    found = {
        "fault": fault,
        "errors": [None if error is None else str(error) for error in errors],
        "failures": dict(runner.stats.failures),
        "processes": [int(line) for line in processes.read_text().split()],
        "secs": time.monotonic() - begun,
    }
    print(json.dumps(found), flush=True)


def with_settings(settings: dict[str, str], function, *arguments):
    """Call a function in this worker, whose driver has settings of its own."""
    os.environ.update(settings)
    return function(*arguments)


def check(folder: Path, path: Path, kinds: list[str]) -> None:
    """Check the kernel, with a fault in the first process, and then in both."""
    arguments = [Argument(name, (64,), "float32") for name in "ab"]
    arrays = [np.arange(64, dtype="float32"), np.zeros(64, "float32")]
    save_arrays(folder / "expected.npz", {0: arrays[0], 1: arrays[0] + 1.0})
    (folder / "output").write_bytes((arrays[0] + 1.0).tobytes())
    verification.DEVICE_SECS = CHECK_SECS
    pool = verification.verifying_pool()
    faults: list[str] = [""]
    output: dict[str, str] = {}

    def run(secs, function, *task):
        settings = {"STAND_IN_FAULT": faults.pop(0), **output}
        return pool.submit(secs, with_settings, settings, function, *task, fresh=True).result()

    target = Target("nvidia/nvidia-h100")
    verifier = verification.Verifier(folder, target, arguments, arrays, [0.0, 0.0], pool, run)
    verdict = verifier.check(path)
    found = {"kind": "idle", "is_right": verdict.is_right, "words": verdict.reason}
    print(json.dumps(found), flush=True)
    output["STAND_IN_OUTPUT"] = str(folder / "output")
    for kind in kinds:
        # A fault comes in the process that makes its file.
        fault = [f"{kind}:1:{folder / kind}.{name}" for name in ("once", "once", "twice", "thrice")]
        faults[:] = fault[:2]
        found = {"kind": kind, "is_right": verifier.check(path).is_right, "left": len(faults)}
        faults[:] = fault[2:]
        try:
            verifier.check(path)
        except verification.DeviceFailed as error:
            found["words"] = str(error)
        print(json.dumps(found), flush=True)
    pool.close()


if __name__ == "__main__":
    here = Path(sys.argv[1])
    build(str(here / "kernel.so"))
    for each in sys.argv[2:]:
        run(here, str(here / "kernel.so"), each)
    kinds = list(dict.fromkeys(each.partition(":")[0] for each in sys.argv[2:]))
    check(here, here / "kernel.so", kinds)

# SPDX-License-Identifier: Apache-2.0
"""A trial of whether kernels run: one matrix product by NVRTC or nvcc, against NumPy.

``python -m ...gpu.first_kernel COMPILER --out OUT --work WORK`` writes ``WORK/compiler.json`` if
they run.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..searches.layers import make_module
from .parts import gpu_target, measuring, part_parser
from .rows import Rows, card, last_words
from .workloads import WORKLOADS, run_built

COMPILERS: Sequence[str] = ("nvrtc", "nvcc")
MODE = "TVM_CUDA_COMPILE_MODE"
NAME = "small_dense"
CHOSEN = "compiler.json"
"""The file of the work folder that stores how kernels can be built."""


def main(argv: Sequence[str] | None = None) -> None:
    """Try a compiler, and write a row for each way to run its kernel."""
    parser = part_parser(__doc__)
    parser.add_argument("compiler", choices=COMPILERS)
    parser.add_argument("--no-comparison", action="store_true")
    args = parser.parse_args(argv)
    rows = Rows(args.out, card())
    os.environ[MODE] = args.compiler
    try:
        target = gpu_target(args.target)
    except Exception as error:
        rows.write("no target", error=last_words(error))
        raise
    rows.write("target", target=str(target), cpus=os.cpu_count())
    is_roomy = check(rows, target, args.compiler, compares=not args.no_comparison)
    if is_roomy is None:
        sys.exit(
            f"no kernel by {args.compiler} runs and is right; see the rows of the first kernel"
        )
    (args.work / CHOSEN).write_text(json.dumps({"roomy": is_roomy}))


def check(rows: Rows, target: Any, compiler: str, *, compares: bool) -> bool | None:
    """Run the product, in this process and through builder and runner.

    ``rows``: receives a row for each way. ``compares``: whether to compare the output; False for a
    stand-in whose kernels do nothing. Returns whether builds need all memory; None if the kernel
    does not run both ways.
    """
    if _tried(rows, compiler, "here", partial(_here, target, compares)):
        for roomy in (False, True):
            way = "measured with room" if roomy else "measured"
            if _tried(rows, compiler, way, partial(_measured, target, roomy)):
                return roomy
    return None


def _tried(rows: Rows, compiler: str, way: str, run: Callable[[], dict[str, Any]]) -> bool:
    begun = time.perf_counter()
    try:
        values = run()
    except Exception as error:
        secs = time.perf_counter() - begun
        rows.write("first kernel", way=way, compiler=compiler, took=secs, error=last_words(error))
        return False
    secs = time.perf_counter() - begun
    rows.write("first kernel", way=way, compiler=compiler, took=secs, **values)
    return True


def _scheduled() -> Any:
    """The matrix product, scheduled with one thread per output element."""
    from tvm.s_tir import Schedule

    schedule = Schedule(make_module(WORKLOADS[NAME]))
    block = schedule.get_sblock("C")
    i, j, _ = schedule.get_loops(block)
    fused = schedule.fuse(i, j)
    blocks, threads = schedule.split(fused, [None, 128])
    schedule.bind(blocks, "blockIdx.x")
    schedule.bind(threads, "threadIdx.x")
    return schedule.mod


def _here(target: Any, compares: bool) -> dict[str, Any]:
    from tvm_droplet_ms.measure.build import build_scheduled

    begun = time.perf_counter()
    module = build_scheduled(_scheduled(), target)
    built = time.perf_counter() - begun
    return {"build": built, **run_built(NAME, module, compares=compares)}


def _measured(target: Any, roomy: bool) -> dict[str, Any]:
    """Measure with the builder and the runner, twice, because the first turn starts the workers."""
    from tvm.s_tir.meta_schedule.arg_info import ArgInfo
    from tvm.s_tir.meta_schedule.builder import BuilderInput
    from tvm.s_tir.meta_schedule.runner import RunnerInput

    tools = measuring(target, 1, roomy=roomy)
    mod, times = _scheduled(), {}
    try:
        for turn in ("first", "second"):
            begun = time.perf_counter()
            (built,) = tools["builder"].build([BuilderInput(mod, target)])
            if built.error_msg:
                raise RuntimeError(f"build: {last_words(str(built.error_msg))}")
            times[f"{turn}_build"] = time.perf_counter() - begun
            begun = time.perf_counter()
            infos = ArgInfo.from_entry_func(mod)
            (future,) = tools["runner"].run([RunnerInput(built.artifact_path, "cuda", infos)])
            result = future.result()
            if result.error_msg:
                raise RuntimeError(f"run: {last_words(str(result.error_msg))}")
            times[f"{turn}_run"] = time.perf_counter() - begun
            times["seconds"] = float(result.run_secs[0])
    finally:
        tools["builder"].close()
        tools["runner"].close()
    return times


if __name__ == "__main__":
    main()

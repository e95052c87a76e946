# SPDX-License-Identifier: Apache-2.0
"""``torch.compile`` with this backend beside Inductor: the table of docs/results/torch_compile.md.

The modules are those of tests/tuning/pytorch/test_dynamo.py. Run it from the repository's root.
"""

import os
import runpy
import tempfile
from statistics import median
from time import perf_counter
from typing import Any

import torch

MODULES = "tests/tuning/pytorch/test_dynamo.py"
BACKENDS = ("droplet", "inductor")
ROUNDS, CALLS = 30, 50


def main() -> None:
    """Compile each module by both backends in one thread, time calls in turns, print the table."""
    torch.set_num_threads(1)
    print("| module | first call, s | Inductor's, s | us a call | Inductor's, us | ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, (make, shape) in runpy.run_path(MODULES)["MODULES"].items():
        torch.manual_seed(0)
        module, x = make().eval(), torch.randn(shape)
        with torch.no_grad(), tempfile.TemporaryDirectory() as cache:
            os.environ["TVM_DROPLET_MS_CACHE"] = os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
            first, runs = [], []
            for backend in BACKENDS:
                torch.compiler.reset()
                run = torch.compile(module, backend=backend)
                started = perf_counter()
                output = run(x)
                first.append(perf_counter() - started)
                torch.testing.assert_close(output, module(x), rtol=1e-3, atol=1e-4)
                runs.append(run)
            ours, other = _in_turns(runs, x)
        cells = [f"{secs:.1f}" for secs in (*first, 1e6 * ours, 1e6 * other)]
        print("|", " | ".join([name, *cells, f"{other / ours:.2f}"]), "|", flush=True)


def _in_turns(runs: list[Any], x: torch.Tensor) -> list[float]:
    """The median seconds of a call of each."""
    times: list[list[float]] = [[] for _ in runs]
    for number in range(ROUNDS + 1):
        for run, found in zip(runs, times, strict=True):
            started = perf_counter()
            for _ in range(CALLS):
                run(x)
            if number:  # The first round warms up.
                found.append((perf_counter() - started) / CALLS)
    return [median(each) for each in times]


if __name__ == "__main__":
    main()

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
"""Does the interval that a result reports hold the time of another process?

    python -m tvm_droplet_ms.bench.live.intervals --trials 16

Tunes workloads with ``tune_kernel``, and then times each winner anew, in a process of its own.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ...kernel_tuning import KernelResult, tune_kernel
from ...kernel_tuning.arguments import random_arrays
from ...kernel_tuning.library_runs import save_arrays, time_libraries
from ...kernel_tuning.verification import RUN_SECS, verifying_pool
from ...tuning.threads import worker_threads
from ..definitions import find_definition

WORKLOADS = (
    "dense",
    "conv2d_3x3",
    "conv2d_1x1",
    "depthwise",
    "softmax_scores",
    "batch_matmul",
    "layer_norm",
    "conv2d_nchw",
    "dense_bias_relu",
    "matmul_square",
)

THREADS = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", nargs="+", default=list(WORKLOADS))
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    inside = 0
    print(f"{'workload':24} {'us':>10} {'low':>10} {'high':>10} {'anew':>10}")
    for workload in options.workloads:
        with tempfile.TemporaryDirectory() as work_dir:
            result = tune_kernel(
                find_definition(workload).mod,
                threads=THREADS,
                trials=options.trials,
                work_dir=work_dir,
                progress=None,
                seed=options.seed,
            )
            inputs = Path(work_dir) / "inputs.npz"
            save_arrays(inputs, random_arrays(result.arguments, options.seed + 1))
            secs = _timed_anew(result, inputs)
        is_inside = result.time.low <= secs <= result.time.high
        inside += is_inside
        row = (result.time.secs, result.time.low, result.time.high, secs)
        text = " ".join(f"{1e6 * value:10.4g}" for value in row)
        print(f"{workload:24} {text}{'' if is_inside else '  outside'}", flush=True)
    print(f"{inside} of {len(options.workloads)} inside")
    return 0


def _timed_anew(result: KernelResult, inputs: Path) -> float:
    # A process of more threads than the kernel was tuned for spends microseconds on waking them.
    with worker_threads(THREADS):
        pool = verifying_pool()
        try:
            task = ([str(result.library)], result.arguments, str(inputs))
            (secs,) = pool.submit(RUN_SECS, time_libraries, *task, fresh=True).result()
        finally:
            pool.close()
    return float(secs)


if __name__ == "__main__":
    sys.exit(main())

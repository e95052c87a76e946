# SPDX-License-Identifier: Apache-2.0
"""Tune a matrix multiplication for the host CPU, check the result and time it.

    python examples/tune_matmul.py --trials 64 --work-dir tuning_logs

A second run with the same work directory goes on from the records of the first.
"""

import argparse
import logging
import tempfile

import numpy as np

import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing.te_workload import matmul
from tvm.te import create_prim_func
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import fast_measure

SIZE = 512


def main() -> None:
    """Tune, apply the best schedule, check and time."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--work-dir", default=tempfile.mkdtemp())
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tvm_droplet_ms").setLevel(logging.INFO)

    mod = create_prim_func(matmul(SIZE, SIZE, SIZE))
    target = host_target()
    database = ms.tune_tir(
        mod,
        target,
        args.work_dir,
        max_trials_global=args.trials,
        strategy=DropletStrategy(),
        **fast_measure(target),
    )

    schedule = ms.tir_integration.compile_tir(database, mod, target)
    kernel = tvm.compile(schedule.mod, target=target)
    a, b = np.random.default_rng(0).random((2, SIZE, SIZE), dtype="float32")
    arguments = [tvm.runtime.tensor(array) for array in (a, b, np.zeros_like(a))]
    kernel(*arguments)
    np.testing.assert_allclose(arguments[-1].numpy(), a @ b, rtol=1e-4)
    timer = kernel.mod.time_evaluator("main", tvm.cpu(), min_repeat_ms=100, repeat=5)
    secs = timer(*arguments).median
    print(f"The result is right: {2 * SIZE**3 / secs / 1e9:.1f} GFLOP/s.")
    print(f"The records are in {args.work_dir}.")


if __name__ == "__main__":
    main()

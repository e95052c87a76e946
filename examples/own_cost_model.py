# SPDX-License-Identifier: Apache-2.0
"""Train a cost model from the records of earlier runs, and tune another kernel with it.

    python examples/own_cost_model.py --trials 64 --out cpu.model

The first runs stand for what has been tuned on this machine before; any work directories of
MetaSchedule will do. The model is saved in a file. ``DropletStrategy`` takes the file as ``prior``:
the model then chooses the first schedules to measure.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing.te_workload import matmul
from tvm.te import create_prim_func
from tvm_droplet_ms import DropletStrategy
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import fast_measure

KNOWN = [(128, 128, 128), (256, 64, 256)]
NEW = (256, 256, 128)


def main() -> None:
    """Tune some kernels, train on their records, and tune another kernel with the model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=64, help="of each kernel")
    parser.add_argument("--work-dir", type=Path, default=Path(tempfile.mkdtemp()))
    parser.add_argument("--out", default="cpu.model", help="the model to write")
    args = parser.parse_args()
    target = host_target()
    measure = fast_measure(target)

    def tune(shape: tuple[int, int, int], strategy: DropletStrategy) -> Path:
        work_dir = args.work_dir / "x".join(map(str, shape))
        mod = create_prim_func(matmul(*shape))
        ms.tune_tir(
            mod, target, str(work_dir), max_trials_global=args.trials, strategy=strategy, **measure
        )
        return work_dir

    work_dirs = [tune(shape, DropletStrategy()) for shape in KNOWN]
    # The same as: droplet-ms pretrain WORK_DIR... --out cpu.model
    command = [sys.executable, "-m", "tvm_droplet_ms", "pretrain", *work_dirs, "--out", args.out]
    subprocess.run(command, check=True)
    work_dir = tune(NEW, DropletStrategy(prior=args.out))
    print(f"The records of the new kernel are in {work_dir}, the model is in {args.out}.")


if __name__ == "__main__":
    main()

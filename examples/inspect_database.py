# SPDX-License-Identifier: Apache-2.0
"""Stop a tuning run, resume it, and look at the records.

    python examples/inspect_database.py --work-dir tuning_logs

The first call of ``tune_tir`` stands for a run that was stopped. The second one goes on with the
same work directory: it counts the records, and measures none of their kernels again. Both are given
the number of trials that they may make themselves.
"""

import argparse
import logging
import tempfile

from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing.te_workload import matmul
from tvm.te import create_prim_func
from tvm_droplet_ms import DropletStrategy, open_database
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import fast_measure


def main() -> None:
    """Tune twice and print the best records."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=32, help="of each of the two runs")
    parser.add_argument("--work-dir", default=tempfile.mkdtemp())
    args = parser.parse_args()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tvm_droplet_ms").setLevel(logging.INFO)

    mod = create_prim_func(matmul(256, 256, 256))
    target = host_target()
    measure = fast_measure(target)
    for _ in range(2):
        ms.tune_tir(
            mod,
            target,
            args.work_dir,
            max_trials_global=args.trials,
            # Opens the records of the work directory. Of a file that is damaged, the error names
            # the lines.
            database=open_database(args.work_dir),
            strategy=DropletStrategy(),
            **measure,
        )

    records = open_database(args.work_dir).get_all_tuning_records()
    # A failure is kept with a time of 1e10 seconds.
    secs = sorted(float(min(record.run_secs)) for record in records)
    measured = [value for value in secs if value < 1e10]
    print(f"{len(records)} records, {len(records) - len(measured)} of them failures")
    print("the fastest, in microseconds:", " ".join(f"{1e6 * value:.1f}" for value in measured[:5]))
    best = min(records, key=lambda record: min(map(float, record.run_secs)))
    print("the decisions of the fastest:")
    for instruction, decision in best.trace.decisions.items():
        print(f"  {instruction.kind.name}: {decision}")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Work directories whose records are written by the tests."""

import copy
import json
import random

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import JSONDatabase
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms.session.records import RECORDS, WORKLOADS


def write_records(work_dir, rows):
    (work_dir / RECORDS).write_text("".join(json.dumps(row) + "\n" for row in rows))


def commit_products(work_dir):
    """Two workloads: the numbers 0 and 1."""
    database = JSONDatabase(work_dir=str(work_dir))
    for rows in (8, 16):
        mod = IRModule({"main": te.create_prim_func(te_workload.matmul(rows, 8, 8))})
        database.commit_workload(mod)


def multiply(tuned, work_dir, tasks, trials, seed=0):
    """A directory of many tasks, from that of a kernel which was tuned.

    Each trial has the trace of a real record with one of its decisions changed, and a random time.
    """
    generator = random.Random(seed)
    rows = [json.loads(line) for line in (tuned / RECORDS).read_text().splitlines()]
    made = []
    for task in range(tasks):
        for number in range(trials):
            row = copy.deepcopy(rows[number % len(rows)])
            decisions = row[1][0][1]
            place = generator.randrange(len(decisions))
            decisions[place] = generator.choice([other[1][0][1] for other in rows])[place]
            row[0], row[1][1] = task, [1e-3 * generator.lognormvariate(0, 0.5)]
            made.append(row)
    work_dir.mkdir()
    write_records(work_dir, made)
    (work_dir / WORKLOADS).write_text((tuned / WORKLOADS).read_text() * tasks)
    return work_dir

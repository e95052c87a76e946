# SPDX-License-Identifier: Apache-2.0
"""Work directories whose records are written by the tests."""

import copy
import json
import random

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.database import JSONDatabase
from tvm.tirx import const
from tvm_droplet_ms.session.records import RECORDS, WORKLOADS


def write_records(work_dir, rows):
    (work_dir / RECORDS).write_text("".join(json.dumps(row) + "\n" for row in rows))


def commit_products(work_dir):
    """Two workloads, the numbers 0 and 1, with extents of 64 bits as in models."""
    database = JSONDatabase(work_dir=str(work_dir))
    for rows in (8, 16):
        n, m = const(rows, "int64"), const(8, "int64")
        a, b = te.placeholder([n, m], name="A"), te.placeholder([m, m], name="B")
        k = te.reduce_axis((const(0, "int64"), m), name="k")
        c = te.compute([n, m], lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
        database.commit_workload(IRModule({"main": te.create_prim_func([a, b, c])}))


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


def event(name, milliseconds, kernels=()):
    """An event of a model; ``kernels``: the name, workload, seconds and roofline share of each."""
    keys = ("name", "workload", "secs", "roofline_share")
    rows = [
        {"weight": 1, "gflops": 2.0, "trials": 1, "schedule": "measured"}
        | dict(zip(keys, kernel, strict=True))
        for kernel in kernels
    ]
    content = {"event": name, "shapes": {"x": [1, 8]}, "kernels": rows}
    quartiles = [0.9 * milliseconds, 1.1 * milliseconds]
    content |= {"milliseconds": {"median": milliseconds, "quartiles": quartiles}}
    ending = {"reference": "ONNX Runtime", "deviation": 1e-6, "why_ended": "time", "notes": []}
    return content | (ending if name == "result" else {})


def write_course(work_dir):
    """Events of a model of one kernel, "b", with two calls: 1,000 us in 2 ms; two runs."""
    first = event("first", 2.0, [("b", "7", 1000e-6, 0.2)])
    first["kernels"][0]["weight"] = 2
    batches = [(5, "b", 450), (6, "b", 480), (7, "c", 1), (8, "b", None), (9, "b", 450)]
    rows = [first | {"started": 1.0, "secs": 3.0}]
    rows += [batch(1.0, *each) for each in batches]
    rows.append(first | {"started": 2.0, "secs": 3.0})
    rows.append(batch(2.0, 4, "b", 300))
    rows.append(event("result", 1.5) | {"started": 2.0, "secs": 6.0})
    work_dir.mkdir(exist_ok=True)
    (work_dir / "progress.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    return work_dir


def batch(started, secs, task, best_us):
    return {"event": "batch", "started": started, "secs": secs, "task": task, "best_us": best_us}


def write_rates(work_dir):
    """The rates of a machine: 100 GFLOP/s, and 10 GB/s from memory."""
    machine = {"cpu": "a", "threads": 1, "peak_gflops": 100.0, "memory_gbytes_per_sec": 10.0}
    (work_dir / "machine.json").write_text(json.dumps(machine | {"versions": {}}))
    return work_dir


def write_model(work_dir):
    """The directory of a model of three kernels, two of them with workloads and a trial each."""
    work_dir.mkdir()
    commit_products(work_dir)
    small, large = (json.loads(line)[0] for line in (work_dir / WORKLOADS).read_text().splitlines())
    trial = [[[], []], [1e-3], {"kind": "llvm"}, []]
    write_records(work_dir, [[0, trial], [1, trial]])
    first = [("b", large, 900e-6, 0.2), ("a", small, 250e-6, 0.5)]
    last = [("b", large, 600e-6, 0.3), ("a", small, 300e-6, 0.5), ("c", "7", 100e-6, 0.1)]
    beside = {"tuned": {"median": 1.0}, "ONNX Runtime": {"median": 2.0}}
    events = [event("first", 1.5, first), event("result", 1.0, last)]
    events.append({"event": "beside", "shapes": {"x": [1, 8]}, "milliseconds": beside})
    text = "".join(json.dumps(each) + "\n" for each in events)
    (work_dir / "progress.jsonl").write_text(text)
    (work_dir / "model.json").write_text(json.dumps({"name": "net.onnx"}))
    (work_dir / "schedules.json").write_text(json.dumps({"a": "# of T.int64(8)", "b": "# of 16"}))
    return work_dir

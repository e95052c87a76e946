# SPDX-License-Identifier: Apache-2.0
"""Child process of the tests: ``child.py COMMAND ...``.

One command prints the modules of each strategy's batches. The other prints those of the finished
batches and is killed while it measures the next.
"""

import json
import os
import signal
import sys
import types

# The schedule functions here tensorize nothing, and parsing all of TVM's intrinsics takes 14 s.
sys.modules["tvm.s_tir.tensor_intrin"] = types.ModuleType("tvm.s_tir.tensor_intrin")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from tvm_ffi import structural_hash  # noqa: E402

from conformance.driving import drive  # noqa: E402
from conformance.objectives import bowl, spread  # noqa: E402
from conformance.reproducing import reproduce  # noqa: E402
from conformance.strategies import make_droplet  # noqa: E402
from conformance.workloads import make_context  # noqa: E402
from tvm_droplet_ms import open_database  # noqa: E402


def be_killed(work_dir: str) -> None:
    measured: list[int] = []

    def objective(candidate):
        if len(measured) == 25:
            database = open_database(work_dir)
            told = len(database.get_all_tuning_records())
            print(json.dumps([measured[:told]]), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        measured.append(structural_hash(candidate.sch.mod))
        return spread(bowl)(candidate)

    drive(make_context(make_droplet()), objective, database=open_database(work_dir))


if __name__ == "__main__":
    if sys.argv[1] == "be-killed":
        be_killed(sys.argv[2])
    else:
        print(json.dumps(reproduce()))

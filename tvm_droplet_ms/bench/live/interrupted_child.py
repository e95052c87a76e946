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
"""Child process of ``interruptions``: ``droplet-ms`` with a witness of what was measured.

``python -m tvm_droplet_ms.bench.live.interrupted_child WITNESS ARGUMENTS...`` runs ``droplet-ms
ARGUMENTS...`` and writes a line to the file WITNESS for each candidate as soon as it is measured,
and one for each batch. Imports no TVM before the command does, so that signals find the process as
they would find ``droplet-ms``.
"""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from ...cli import main, tune

if TYPE_CHECKING:
    from tvm.tirx import PrimFunc

MEASURED = "measured"
"""The line of a candidate."""

BATCH = "batch"
"""How the line of a batch begins; its size follows."""


def small_matmul() -> "PrimFunc":
    """The kernel that is tuned: of microseconds, so that a run is short."""
    from tvm import te
    from tvm.s_tir.meta_schedule.testing import te_workload

    return te.create_prim_func(te_workload.matmul(64, 64, 64))


def watch(witness: str) -> None:
    """Have the runner and the stop rules of this process write to the witness."""
    from ...kernel_tuning.stop_rules import StopRules
    from ...measure import candidate_timer

    file = os.open(witness, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    result, tell = vars(candidate_timer)["RunnerResult"], StopRules.tell

    def measured(*arguments: Any) -> Any:
        os.write(file, f"{MEASURED}\n".encode())
        return result(*arguments)

    def told(self: StopRules, times: Any) -> None:
        os.write(file, f"{BATCH} {len(times)}\n".encode())
        tell(self, times)

    vars(candidate_timer)["RunnerResult"] = measured
    setattr(StopRules, "tell", told)


def run(witness: str, arguments: list[str]) -> int:
    """Run the command with the witness; returns its exit status."""
    tune_one = vars(tune)["tune_one"]

    def watched(options: argparse.Namespace, minutes_left: float) -> int:
        watch(witness)
        status: int = tune_one(options, minutes_left)
        return status

    vars(tune)["tune_one"] = watched
    return main(arguments)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2:]))

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
"""Tune a matrix multiplication for the host CPU, and run the best kernel found.

Usage: python examples/tune_matmul.py [WORK_DIR]. A second run of one directory goes on.
"""

import logging
import sys
import tempfile

import numpy as np

import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.testing.te_workload import matmul
from tvm.te import create_prim_func
from tvm_droplet_ms import DropletStrategy, open_database
from tvm_droplet_ms.host import host_target
from tvm_droplet_ms.measure import fast_measure


def main() -> None:
    logging.basicConfig(format="%(message)s")
    logging.getLogger("tvm_droplet_ms").setLevel(logging.INFO)
    work_dir = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()

    mod = create_prim_func(matmul(512, 512, 512))
    target = host_target()
    database = ms.tune_tir(
        mod,
        target,
        work_dir,
        max_trials_global=96,
        database=open_database(work_dir),
        strategy=DropletStrategy(),
        **fast_measure(target),
    )

    schedule = ms.tir_integration.compile_tir(database, mod, target)
    kernel = tvm.compile(schedule.mod, target=target)
    rng = np.random.default_rng(0)
    a, b = (rng.random((512, 512), dtype="float32") for _ in range(2))
    out = tvm.runtime.tensor(np.zeros((512, 512), "float32"))
    kernel(tvm.runtime.tensor(a), tvm.runtime.tensor(b), out)
    np.testing.assert_allclose(out.numpy(), a @ b, rtol=1e-4)
    print(f"the result is right; the database is in {work_dir}")


if __name__ == "__main__":
    main()

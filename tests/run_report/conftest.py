# SPDX-License-Identifier: Apache-2.0
"""A kernel that was tuned, for all tests of the page."""

import pytest

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms.tuning.kernel import tune_kernel


@pytest.fixture(scope="session")
def tuned(tmp_path_factory):
    mod = IRModule({"main": te.create_prim_func(te_workload.matmul(32, 32, 32))})
    work_dir = tmp_path_factory.mktemp("tuned") / "logs"
    return tune_kernel(mod, trials=8, work_dir=work_dir, name="product", progress=None)

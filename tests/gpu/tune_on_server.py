# SPDX-License-Identifier: Apache-2.0
"""Tunes a dense on a server of TVM's RPC that has the device; prints what came out."""

import kernels
from fleets import local_fleet

from tvm_droplet_ms import tune_kernel
from tvm_droplet_ms.tuning.kernel import KernelError

with local_fleet() as fleet:
    fleet.ensure("card", 1)
    there = {"tracker": fleet.tracker, "key": "card", "progress": None, "trials": 4}
    try:
        tune_kernel(kernels.dense(), target="cuda", **there)
    except KernelError as error:
        print(error)
    result = tune_kernel(kernels.dense(), target="nvidia/nvidia-h100", work_dir="logs", **there)
    print(result.as_json())

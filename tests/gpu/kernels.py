# SPDX-License-Identifier: Apache-2.0
"""Kernels for the stand-in: their output is the last that is allocated of its size."""

import numpy as np

from tvm import te
from tvm.ir import IRModule
from tvm.s_tir.meta_schedule.testing import te_workload
from tvm_droplet_ms.bench.definition import Definition, whole
from tvm_droplet_ms.tuning.kernel.check.arguments import arguments_of, random_arrays
from tvm_droplet_ms.tuning.kernel.kernel_run import module_of


def dense() -> IRModule:
    """A product whose three matrices differ in size."""
    return IRModule({"main": te.create_prim_func(te_workload.matmul(64, 96, 32))})


def dense_space() -> Definition:
    """The whole space of the product, for ``droplet-ms space sample``."""
    return Definition("dense", "product", module_of(dense()), whole, is_whole=True)


def softmax() -> IRModule:
    """A softmax. The size is no multiple of a page, to which TVM rounds what is temporary."""
    return IRModule({"main": te.create_prim_func(te_workload.softmax_mn(64, 100))})


def arrays_of(kernel: IRModule) -> list[np.ndarray]:
    """The values that ``tune_kernel`` checks a kernel on, with the seed 0."""
    return random_arrays(arguments_of(module_of(kernel)), 0)


def output_of(name: str, arrays: list[np.ndarray]) -> np.ndarray:
    """The kernel's output, by NumPy."""
    if name == "dense":
        return arrays[0] @ arrays[1]
    powers = np.exp(arrays[0] - arrays[0].max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)

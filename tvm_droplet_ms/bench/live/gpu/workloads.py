# SPDX-License-Identifier: Apache-2.0
"""The workloads of the GPU run, their modules, and their outputs by NumPy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Workload:
    """An operator with its shapes."""

    function: str
    arguments: tuple[Any, ...]
    tolerance: float


WORKLOADS: Mapping[str, Workload] = {
    "dense": Workload("matmul", (1024, 1024, 1024), 1e-4),
    "conv2d": Workload("conv2d_nhwc", (1, 56, 56, 64, 64, 3, 1, 1), 1e-4),
    "dense_fp16": Workload("matmul", (1024, 1024, 1024, "float16", "float16"), 2e-2),
    "small_dense": Workload("matmul", (128, 128, 128), 1e-4),
}
"""The workloads by name; ``small_dense`` is for a quick trial of the commands.

The half precision one also sums in float16: with float32 sums TVM 0.27 builds only the schedules
that store single elements ("tvm_access_ptr element type must match the source buffer").
"""


def make_module(name: str) -> Any:
    """Make the ``IRModule`` of a workload, with its function named ``main``."""
    from ..layers import Layer
    from ..layers import make_module as make

    workload = WORKLOADS[name]
    return make(Layer(name, workload.function, workload.arguments))


def inputs(name: str, seed: int = 0) -> list[np.ndarray]:
    """Random inputs of a workload, uniform in [-0.5, 0.5)."""
    workload, generator = WORKLOADS[name], np.random.default_rng(seed)
    if workload.function == "matmul":
        n, m, k, *types = workload.arguments
        shapes: Sequence[tuple[int, ...]] = [(n, k), (k, m)]
        dtype = types[0] if types else "float32"
    else:
        batch, height, width, channels, outputs, size, *_ = workload.arguments
        shapes = [(batch, height, width, channels), (size, size, channels, outputs)]
        dtype = "float32"
    return [(generator.random(shape, np.float32) - 0.5).astype(dtype) for shape in shapes]


def output_type(name: str) -> str:
    """The type of the elements of the output."""
    workload = WORKLOADS[name]
    types = workload.arguments[3:] if workload.function == "matmul" else ()
    return str(types[1]) if types else "float32"


def expected(name: str, values: Sequence[np.ndarray]) -> np.ndarray:
    """The output by NumPy, in float32."""
    data, weight = (value.astype(np.float32) for value in values)
    if WORKLOADS[name].function == "matmul":
        return data @ weight
    padding = WORKLOADS[name].arguments[7]
    padded = np.pad(data, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[:2], axis=(1, 2))
    result: np.ndarray = np.einsum("nhwcij,ijco->nhwo", windows, weight, optimize=True)
    return result


def error_of(result: np.ndarray, reference: np.ndarray) -> float:
    """The largest error of an output, relative to the largest element of the reference."""
    return float(np.abs(result.astype(np.float32) - reference).max() / np.abs(reference).max())

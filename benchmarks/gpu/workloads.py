# SPDX-License-Identifier: Apache-2.0
"""The workloads of the GPU run, their NumPy references, and functions that run their kernels.

Kernels run in worker processes, because a fault on the card makes its process unusable.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..searches.layers import Layer, make_module
from .parts import gpu_target

HALF = "float16"

WORKLOADS: Mapping[str, Layer] = {
    "dense": Layer("dense", "matmul", (1024, 1024, 1024)),
    "conv2d": Layer("conv2d", "conv2d_nhwc", (1, 56, 56, 64, 64, 3, 1, 1)),
    "dense_fp16": Layer("dense_fp16", "matmul", (1024, 1024, 1024, HALF, HALF)),
    "small_dense": Layer("small_dense", "matmul", (128, 128, 128)),
}
"""The workloads by name; ``small_dense`` is for a quick test of the commands.

``dense_fp16`` also accumulates in float16: with float32 accumulation, TVM 0.27 builds only
schedules that store single elements ("tvm_access_ptr element type must match the source buffer").
"""


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
    """The dtype of the output."""
    workload = WORKLOADS[name]
    types = workload.arguments[3:] if workload.function == "matmul" else ()
    return str(types[1]) if types else "float32"


def expected(name: str, values: Sequence[np.ndarray]) -> np.ndarray:
    """Compute the output with NumPy in float32."""
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


def run_built(name: str, module: Any, *, compares: bool) -> dict[str, Any]:
    """Run a built workload on the card and compare it with NumPy.

    Raises ``ValueError`` if the relative error exceeds the tolerance.
    """
    import tvm

    values = inputs(name)
    reference = expected(name, values)
    device = tvm.cuda(0)
    arrays = [tvm.runtime.tensor(value, device) for value in values]
    output = tvm.runtime.tensor(np.full(reference.shape, np.nan, output_type(name)), device)
    module["main"](*arrays, output)
    device.sync()
    if not compares:
        return {"error_relative": None}
    error = error_of(output.numpy(), reference)
    tolerance = 2e-2 if output_type(name) == HALF else 1e-4
    if not error <= tolerance:
        raise ValueError(
            f"the output of {name} is off by {error:g} of its largest element, expected at most "
            f"{tolerance:g}"
        )
    return {"error_relative": error}


def check_winner(folder: Path, workload: str, target: str, library: Path, compares: bool) -> Any:
    """Build the best schedule of a database, write its library, and compare it with NumPy.

    Returns ``{"error_relative": ...}``, with None if nothing is compared. Raises ``RuntimeError``
    if the database has no schedule, and ``ValueError`` if the relative error exceeds the tolerance.
    """
    from tvm.s_tir import meta_schedule as ms
    from tvm_droplet_ms.measure.build import build_scheduled
    from tvm_droplet_ms.session.records import mend_torn_end

    # The search may have been stopped during a write.
    mend_torn_end(folder)
    database = ms.database.JSONDatabase(
        str(folder / "database_workload.json"), str(folder / "database_tuning_record.json")
    )
    known = gpu_target(target)
    schedule = database.query_schedule(make_module(WORKLOADS[workload]), known, "main")
    if schedule is None:
        raise RuntimeError(f"the database in {folder} holds no schedule of {workload}")
    module = build_scheduled(schedule.mod, known)
    module.export_library(str(library))
    return run_built(workload, module, compares=compares)


def time_winner(workload: str, library: Path) -> float:
    """The seconds per call, timed on the card."""
    import tvm

    device = tvm.cuda(0)
    arrays = [tvm.runtime.tensor(value, device) for value in inputs(workload)]
    arrays.append(tvm.runtime.empty(_output_shape(workload), output_type(workload), device))
    module = tvm.runtime.load_module(str(library))
    timer = module.time_evaluator("main", device, number=10, repeat=1, min_repeat_ms=50)
    return float(timer(*arrays).mean)


def _output_shape(workload: str) -> Sequence[int]:
    """The shape of the output; the convolution preserves height and width."""
    arguments = WORKLOADS[workload].arguments
    if WORKLOADS[workload].function == "matmul":
        return arguments[:2]
    batch, height, width, _, outputs, *_ = arguments
    return (batch, height, width, outputs)

# SPDX-License-Identifier: Apache-2.0
"""The demo's kernels: definitions, output check and timing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import tvm
from tvm import te
from tvm.ir import IRModule
from tvm.runtime import Module
from tvm.s_tir import Schedule, Trace
from tvm.s_tir.meta_schedule.testing import te_workload


class DemoError(Exception):
    """The demo cannot continue. The message says why."""


@dataclass(frozen=True)
class Kernel:
    """A kernel to tune.

    ``shapes``: the shapes of the float32 arguments, the output last. ``flop``: floating-point
    operations of one call, including operations on padding.
    """

    name: str
    mod: IRModule
    shapes: tuple[tuple[int, ...], ...]
    flop: int


def demo_kernels() -> list[Kernel]:
    """A matrix multiplication and a padded 3x3 convolution in NHWC, both in float32."""
    n = 512
    side, channels = 56, 64
    image = (1, side, side, channels)
    convolution = te_workload.conv2d_nhwc(*image, channels, kernel_size=3, padding=1)
    return [
        Kernel(
            "matmul",
            IRModule({"main": te.create_prim_func(te_workload.matmul(n, n, n))}),
            ((n, n), (n, n), (n, n)),
            2 * n**3,
        ),
        Kernel(
            "conv2d_3x3",
            IRModule({"main": te.create_prim_func(convolution)}),
            (image, (3, 3, channels, channels), image),
            2 * side**2 * channels**2 * 3**2,
        ),
    ]


def scheduled(kernel: Kernel, trace: Trace) -> IRModule:
    """Apply a recorded trace to a kernel."""
    schedule = Schedule(kernel.mod)
    trace.apply_to_schedule(schedule, remove_postproc=False)
    return schedule.mod


def check_outputs(name: str, modules: Sequence[Module], arrays: Sequence[np.ndarray]) -> None:
    """Check that all modules compute the same output as the first module.

    ``name``: name of the kernel, for the message. ``modules``: built modules, the reference first.
    ``arrays``: arguments of the kernel, the output last. Raises ``DemoError`` if an output differs
    by more than the rounding error of a few hundred float32 products summed in another order.
    """
    outputs = []
    for module in modules:
        tensors = [tvm.runtime.tensor(array) for array in arrays]
        module["main"](*tensors)
        outputs.append(tensors[-1].numpy())
    for output in outputs[1:]:
        try:
            np.testing.assert_allclose(output, outputs[0], rtol=1e-3, atol=1e-3)
        except AssertionError as error:
            raise DemoError(
                f"{name}: the output of a tuned kernel differs from the untuned one: {error}"
            ) from error


def time_in_alternation(
    modules: Sequence[Module], arrays: Sequence[np.ndarray], *, rounds: int, min_repeat_ms: int
) -> list[list[float]]:
    """Time modules in alternation, so that other load on the machine affects all of them alike.

    ``min_repeat_ms``: the minimum duration of a timing, in milliseconds. Returns the times of each
    module in seconds, one per round.
    """
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    evaluators = [
        module.time_evaluator("main", tvm.cpu(), number=1, repeat=1, min_repeat_ms=min_repeat_ms)
        for module in modules
    ]
    timed = [[evaluator(*tensors).mean for evaluator in evaluators] for _ in range(rounds)]
    return [list(secs) for secs in zip(*timed, strict=True)]

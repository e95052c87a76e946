# SPDX-License-Identifier: Apache-2.0
"""Checks and times a module of a space, in a worker."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import tvm
from tvm.runtime import Device

REPEAT_SECS = 0.01
"""Minimum duration of one timing, in seconds."""

Shape = tuple[tuple[int, ...], str]
"""The shape and the dtype of an argument."""


@dataclass(frozen=True)
class Timed:
    """One timing of a module.

    ``secs``: the time of one call in seconds. ``is_right``: True if the output matches the
    unscheduled module's.
    """

    secs: float
    is_right: bool


def time_module(
    path: str, reference: str, arguments: Sequence[Shape], seed: int, device: str = "cpu"
) -> Timed:
    """Load a module, check its output, and time it on newly allocated arguments.

    ``reference``: the library of the unscheduled module, for the CPU. ``device``: TVM's name of the
    device type to run on. The check also serves as the warm-up call. A call of at least
    ``REPEAT_SECS`` is timed alone; a shorter call is repeated for that long.
    """
    module = tvm.runtime.load_module(path)
    inputs, expected = _problem(reference, tuple(arguments), seed)
    place = tvm.runtime.device(device, 0)
    shape, dtype = arguments[-1]
    tensors = [tvm.runtime.tensor(array, place) for array in inputs]
    output = tvm.runtime.empty(shape, dtype, place)
    tensors.append(output)
    module[module.entry_name](*tensors)
    is_right = np.allclose(output.numpy(), expected, rtol=1e-3, atol=1e-3)
    secs = _call_secs(module, place, tensors, 1)
    if secs < REPEAT_SECS:
        secs = _call_secs(module, place, tensors, math.ceil(REPEAT_SECS / max(secs, 1e-9)))
    return Timed(secs, bool(is_right))


@cache
def _problem(
    reference: str, arguments: tuple[Shape, ...], seed: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Random inputs, and the output of the unscheduled module for them."""
    rng = np.random.default_rng(seed)
    inputs = [rng.uniform(-1, 1, shape).astype(dtype) for shape, dtype in arguments[:-1]]
    shape, dtype = arguments[-1]
    output = tvm.runtime.empty(shape, dtype)
    module = tvm.runtime.load_module(reference)
    module[module.entry_name](*(tvm.runtime.tensor(array) for array in inputs), output)
    return inputs, output.numpy()


def _call_secs(module: Any, place: Device, tensors: Sequence[Any], number: int) -> float:
    evaluator = module.time_evaluator(module.entry_name, place, number=number, repeat=1)
    return float(evaluator(*tensors).mean)

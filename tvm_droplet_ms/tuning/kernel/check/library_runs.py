# SPDX-License-Identifier: Apache-2.0
"""Runs and times libraries of a kernel, in a worker process or with a session on a server."""

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import tvm
from tvm.rpc import RPCSession
from tvm.runtime import Device, Module

from ....measure.allocation import read_array, save_arrays
from ....measure.fleet.session import set_threads, upload
from .arguments import Argument

REPEATS, REPEAT_SECS = 3, 0.02
"""Repeats of each schedule in a round, and minimum seconds of a repeat."""


def _load(library: str, session: RPCSession | None) -> Module:
    if session is None:
        return tvm.runtime.load_module(library)
    name = os.path.basename(library)
    upload(session, library, name)
    return session.load_module(name)


def _device(name: str, session: RPCSession | None) -> Device:
    return tvm.runtime.device(name, 0) if session is None else session.device(name, 0)


def _tensors(
    arguments: Sequence[Argument], inputs: str, device: Device
) -> list[tvm.runtime.Tensor]:
    with np.load(inputs) as content:
        return [
            tvm.runtime.tensor(read_array(content, n, one.numpy_dtype, one.shape).copy(), device)
            for n, one in enumerate(arguments)
        ]


def run_library(
    library: str,
    arguments: Sequence[Argument],
    inputs: str,
    out: str,
    device: str = "cpu",
    session: RPCSession | None = None,
) -> tuple[float, str]:
    """Run a library once, in this process or in a session on a server.

    ``inputs``, ``out``: files of ``save_arrays`` with the arguments' values before and after the
    call. Returns the seconds of the call, and why ``out`` could not be written; empty if it was
    written.
    """
    module = _load(library, session)
    place = _device(device, session)
    tensors = _tensors(arguments, inputs, place)
    start = time.perf_counter()
    module["main"](*tensors)
    place.sync()
    secs = time.perf_counter() - start
    try:
        save_arrays(Path(out), {n: tensor.numpy() for n, tensor in enumerate(tensors)})
    except OSError as error:
        return secs, str(error)
    return secs, ""


def time_libraries(
    libraries: Sequence[str],
    arguments: Sequence[Argument],
    inputs: str,
    device: str = "cpu",
    session: RPCSession | None = None,
) -> list[float]:
    """The seconds per call of each library, all in one process, by the device's clock."""
    found = []
    place = _device(device, session)
    for library in libraries:
        module = _load(library, session)
        tensors = _tensors(arguments, inputs, place)
        # Let TVM choose the number of calls. A number computed from the first call of a process,
        # which loads pages of code and data, would be too small.
        evaluator = module.time_evaluator(
            "main",
            place,
            number=1,
            repeat=REPEATS,
            min_repeat_ms=math.ceil(1e3 * REPEAT_SECS),
        )
        found.append(float(median(evaluator(*tensors).results)))
    return found


def on_server(session: RPCSession, threads: int, function: Any, *arguments: Any) -> Any:
    """Call ``run_library`` or ``time_libraries`` with a session, on ``threads`` server threads."""
    set_threads(session, threads)
    return function(*arguments, session)

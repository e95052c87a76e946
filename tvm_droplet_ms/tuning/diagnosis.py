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
"""Finds the kernel or the graph pass that changes a model's outputs."""

from collections.abc import Callable, Sequence

import numpy as np

import tvm
from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.arg_info import ArgInfo
from tvm.s_tir.meta_schedule.database import TuningRecord
from tvm.target import Target

from ..deviation import largest_deviation
from .frontends.imported import Arrays

NamedPass = tuple[str, tvm.transform.Pass]
Run = Callable[[IRModule], Arrays]


def kernel_deviation(record: TuningRecord, target: Target, seed: int = 0) -> float:
    """The largest relative difference between a scheduled kernel and the untouched one.

    Parameters
    ----------
    record : TuningRecord
        The kernel and its schedule.
    target : Target
        The target, which this machine runs.
    seed : int
        Seed of the random arguments.

    Returns
    -------
    deviation : float
        As of ``largest_deviation``, over all buffers, which include the outputs.
    """
    schedule = Schedule(record.workload.mod)
    record.trace.apply_to_schedule(schedule, remove_postproc=False)
    generator = np.random.default_rng(seed)
    arguments = [_random(info, generator) for info in ArgInfo.from_entry_func(record.workload.mod)]
    outputs = [_run(mod, arguments, target) for mod in (schedule.mod, record.workload.mod)]
    return largest_deviation(*outputs)


def first_wrong_pass(
    mod: IRModule, passes: Sequence[NamedPass], run: Run, expected: Arrays, tolerance: float
) -> str | None:
    """The first of the passes after which the outputs differ.

    Parameters
    ----------
    mod : IRModule
        The module that was imported.
    passes : Sequence[tuple[str, Pass]]
        Passes by name, in order.
    run : Callable[[IRModule], list[np.ndarray]]
        Compiles a module without schedules and runs it on the inputs.
    expected : list[np.ndarray]
        The right outputs.
    tolerance : float
        The largest relative difference that is rounding.

    Returns
    -------
    name : str | None
        None where all of them keep the outputs.
    """
    for name, step in passes:
        mod = step(mod)
        if largest_deviation(run(mod), expected) > tolerance:
            return name
    return None


def _random(info: ArgInfo, generator: np.random.Generator) -> np.ndarray:
    shape = tuple(int(extent) for extent in info.shape)
    if str(info.dtype).startswith("float"):
        return generator.standard_normal(shape).astype(str(info.dtype))
    return np.zeros(shape, dtype=str(info.dtype))


def _run(mod: IRModule, arguments: Sequence[np.ndarray], target: Target) -> Arrays:
    tensors = [tvm.runtime.tensor(array) for array in arguments]
    tvm.tirx.build(mod, target=target)["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]

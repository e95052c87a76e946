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
"""A builder for CPU candidates that leaves out what their build does not need."""

from collections.abc import Callable
from typing import Any

from tvm import IRModule
from tvm.runtime import Module
from tvm.s_tir.meta_schedule.builder import LocalBuilder
from tvm.target import Target


def cpu_build_function() -> Callable[[IRModule, Target, Any], Module]:
    """Make the function with which ``cpu_builder`` builds.

    Returns
    -------
    build_scheduled : Callable[[IRModule, Target, Any], Module]
        Takes a scheduled module, an LLVM CPU target and parameters, which it ignores as
        ``default_build`` does; raises what TVM raises where the module cannot be built.
    """

    # A nested function reaches the workers by value. A module-level one would make each of them
    # import this package, and all of TVM that it uses, only to find the function.
    def build_scheduled(mod: IRModule, target: Target, _params: Any) -> Module:
        from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
        from tvm.tirx import build

        mod = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
        return build(mod, target=target)

    return build_scheduled


def cpu_builder(max_workers: int | None = None, timeout_sec: float = 30.0) -> LocalBuilder:
    """Make a TVM ``LocalBuilder`` for LLVM CPU targets whose workers start quickly.

    ``LocalBuilder`` makes fresh worker processes for every batch, and in each of them the first
    ``default_build`` imports ``tvm.s_tir.tensor_intrin``. That parses the tensor intrinsics of
    every backend, which takes 14 to 20 s of the build's timeout and can exceed it on a busy
    machine, when all builds of all batches fail. Building a module that is already scheduled
    needs none of them: ``tensorize`` put an intrinsic's implementation into the module when it
    was scheduled. This builder does the same as ``default_build``
    (``meta_schedule/builder/local_builder.py``) without that import.

    Targets other than LLVM CPUs should keep TVM's own builder: this one is not tried on them.

    Parameters
    ----------
    max_workers : int, optional
        The number of worker processes. Defaults to the number of logical CPUs.
    timeout_sec : float
        The time that one build may take, in seconds.

    Returns
    -------
    builder : LocalBuilder
        For the ``builder`` argument of ``tune_tir``, ``tune_relax`` or ``tune_tasks``. A build
        that raises or takes too long is a ``BuilderResult`` with ``error_msg`` set.
    """
    return LocalBuilder(
        max_workers=max_workers, timeout_sec=timeout_sec, f_build=cpu_build_function()
    )

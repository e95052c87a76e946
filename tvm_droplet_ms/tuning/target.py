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
"""The target of a tuning run."""

from collections.abc import Mapping
from typing import Any

from tvm.target import Target

from ..host import host_target
from .errors import ModelError


def cpu_target(target: str | Mapping[str, Any] | Target, threads: int) -> Target:
    """The CPU target to tune for, with ``num-cores`` set to the number of threads.

    Parameters
    ----------
    target : str | Mapping[str, Any] | Target
        "auto" for this machine's CPU, or a target of kind ``llvm``.
    threads : int
        Threads of the runtime.

    Returns
    -------
    target : Target
        The target.

    Raises
    ------
    ModelError
        If TVM does not know the target, or it is none of a CPU.
    """
    if isinstance(target, str) and target == "auto":
        target = host_target()
    try:
        given = target if isinstance(target, Target) else Target(target)
    # TVM raises several types for a target that it does not know.
    except Exception as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise ModelError(f"target {target!r} is not known to TVM: {first}") from error
    if given.kind.name != "llvm":
        raise ModelError(
            f"target {given} is of kind {given.kind.name}: whole models are tuned for CPUs, "
            "expected the kind llvm"
        )
    return Target({**dict(given.export()), "num-cores": threads})

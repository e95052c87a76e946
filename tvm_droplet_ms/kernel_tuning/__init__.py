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
"""Tune a single kernel: one call, stops, resume, and a winner that was checked.

``tune_kernel`` is the call. ``stop_rules`` says when to end, ``arguments`` makes the inputs,
``verification`` checks and times the best schedules in worker processes, and ``records`` puts what
it found into the database.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .kernel_result import KernelError, KernelInterrupted, KernelResult
    from .kernel_run import tune_kernel

__all__ = ["KernelError", "KernelInterrupted", "KernelResult", "tune_kernel"]

_MODULES = {
    "KernelError": ".kernel_result",
    "KernelInterrupted": ".kernel_result",
    "KernelResult": ".kernel_result",
    "tune_kernel": ".kernel_run",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)

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
"""Worker processes that sample schedules and compile kernels."""

from ..measure.build import prepare_to_build
from ..measure.pool import WorkerPool, available_cpus
from ..model.kernels.registration import register_schedule_rules


def start_workers(count: int | None = None) -> WorkerPool:
    """Start worker processes, without waiting for them.

    Parameters
    ----------
    count : int | None
        Their number. None for one on each CPU.

    Returns
    -------
    pool : WorkerPool
        Close it after use.
    """
    return WorkerPool(count or len(available_cpus()), prepare=_prepare)


def _prepare() -> None:
    """Import what the workers need, before they are forked."""
    import xgboost  # noqa: F401

    register_schedule_rules()
    prepare_to_build()

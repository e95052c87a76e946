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
"""The builder and the runner of the GPU run."""

from typing import Any

import psutil


def measuring(target: Any, workers: int | None, *, roomy: bool) -> dict[str, Any]:
    """``fast_measure``, as it comes or with builds that may take all of the machine's memory.

    A build worker's address space is limited. CUDA's driver reserves more than it uses, so where a
    build comes to load it, that may fail.

    Parameters
    ----------
    target : Target
        The GPU.
    workers : int | None
        Build processes; None for one for each CPU.
    roomy : bool
        Whether builds may take all memory.
    """
    from ....measure import WarmBuilder, fast_measure
    from ....measure.build import export_shared_library

    tools = fast_measure(target, max_workers=workers)
    if roomy:
        tools["builder"].close()
        tools["builder"] = WarmBuilder(
            max_workers=workers,
            f_export=export_shared_library,
            paired=True,
            memory_limit_mb=16 * psutil.virtual_memory().total >> 20,
        )
    return tools

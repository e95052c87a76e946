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
"""Measuring on several machines, through TVM's own RPC tracker and servers.

``tracker`` asks TVM's tracker with time limits, ``servers`` waits for a server and says where none
comes, ``session`` runs something on a server in a worker process of this machine, ``remote`` gives
each call a server and says whose fault a lost session is, and ``runner`` is MetaSchedule's runner.
``serve`` starts a server that outlives kernels that crash.
"""

from typing import TYPE_CHECKING

from ...lazy import lazy_names

if TYPE_CHECKING:
    from .runner import FleetRunner
    from .tracker import FleetError

__all__ = ["FleetError", "FleetRunner"]

_MODULES = {"FleetError": ".tracker", "FleetRunner": ".runner"}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _MODULES)

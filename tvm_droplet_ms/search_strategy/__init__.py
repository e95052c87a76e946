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
"""The search strategy: what to measure next.

The names are imported when they are first used, so that the modules without TVM need none.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .droplet import DropletStrategy
    from .explorers import EvolutionaryExplorer, Explorer, RandomExplorer, SeededExplorer
    from .log import SearchProgress
else:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "DropletStrategy",
    "EvolutionaryExplorer",
    "Explorer",
    "RandomExplorer",
    "SearchProgress",
    "SeededExplorer",
]

_MODULES = {
    "DropletStrategy": "droplet",
    "EvolutionaryExplorer": "explorers",
    "Explorer": "explorers",
    "RandomExplorer": "explorers",
    "SearchProgress": "log",
    "SeededExplorer": "explorers",
}

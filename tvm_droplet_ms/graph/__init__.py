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
"""Search for the graph to tune: equality saturation, exact extraction and Monte Carlo tree search.

Imports no TVM.
"""

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from .graph_pass import OptimizeGraph
    from .optimizer import Optimized, optimize
    from .pricing.prices import Price, RooflinePrice
    from .rules import ALL_RULES, rules_of

__all__ = [
    "ALL_RULES",
    "OptimizeGraph",
    "Optimized",
    "Price",
    "RooflinePrice",
    "optimize",
    "rules_of",
]

if not TYPE_CHECKING:
    __getattr__ = lazy_names(
        __name__,
        {
            "ALL_RULES": ".rules",
            "OptimizeGraph": ".graph_pass",
            "Optimized": ".optimizer",
            "Price": ".pricing.prices",
            "RooflinePrice": ".pricing.prices",
            "optimize": ".optimizer",
            "rules_of": ".rules",
        },
    )

# SPDX-License-Identifier: Apache-2.0
"""Search for the graph to tune: equality saturation, exact extraction and Monte Carlo tree search.

Imports no TVM.
"""

from typing import TYPE_CHECKING

from tvm_droplet_ms.compat.lazy import lazy_names

if TYPE_CHECKING:
    from .extraction.prices import Price, RooflinePrice
    from .graph_pass import OptimizeGraph
    from .optimizer import Optimized, optimize
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
            "Price": ".extraction.prices",
            "RooflinePrice": ".extraction.prices",
            "optimize": ".optimizer",
            "rules_of": ".rules",
        },
    )

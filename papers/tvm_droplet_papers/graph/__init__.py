# SPDX-License-Identifier: Apache-2.0
"""Search for the graph to tune: equality saturation, exact extraction and Monte Carlo tree search.

Imports no TVM.
"""

from typing import TYPE_CHECKING

from tvm_droplet_ms.compat.lazy import lazy_exports

if TYPE_CHECKING:
    from .extraction.prices import Price as Price
    from .extraction.prices import RooflinePrice as RooflinePrice
    from .graph_pass import OptimizeGraph as OptimizeGraph
    from .optimizer import Optimized as Optimized
    from .optimizer import optimize as optimize
    from .rules import ALL_RULES as ALL_RULES
    from .rules import rules_of as rules_of
else:
    __getattr__, __all__ = lazy_exports(__name__, __file__)

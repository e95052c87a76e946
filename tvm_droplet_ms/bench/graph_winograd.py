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
"""Whether a graph that is chosen without Winograd convolutions is the best one with them, too.

    python -m tvm_droplet_ms.bench.graph_winograd --markdown

`tune` decides for each convolution whether Winograd's algorithm computes it, after the graph is
chosen. The order is right where the cheapest graph by the prices of direct convolutions is as cheap
as any by the prices of Winograd convolutions. Both are extracted from the same e-graph, by the
rooflines of a made-up machine. Nothing is measured.

Costs in the table are over that of the best graph with Winograd convolutions: "none" without any,
"afterwards" where they are chosen after the graph.
"""

import argparse
import sys
from collections.abc import Sequence

from ..graph import ALL_RULES, RooflinePrice
from ..graph.equality.egraph import EGraph
from ..graph.equality.language import Tensor
from ..graph.equality.saturate import saturate
from ..graph.extraction.extract import extract
from ..graph.extraction.implementations import Implementation, Layout, stored
from ..graph.extraction.problem import Choice, Plan, problem_of
from ..graph.optimizer import MAX_NODES, prepared_for_import
from ..graph.pricing.prices import Price
from ..graph.relax.importer import import_function
from ..model.prepare import prepare_graph
from .graph_models import MODELS
from .graph_search_run import EXTRACTION_SECS, MACHINE
from .live.tables import format_table

SPEEDS = (1.25, 2.5, 4.0)
"""How much faster than direct ones Winograd convolutions are taken to be: from little to the most
that is possible, since 4x4 tiles take 4 times fewer products."""


class WinogradPrice:
    """Rooflines, where convolutions that Winograd's algorithm can compute are faster.

    Parameters
    ----------
    direct : Price
        The prices of direct convolutions, and of all else.
    speed : float
        How much faster.
    """

    def __init__(self, direct: Price, speed: float) -> None:
        self._direct = direct
        self._speed = speed

    def kernel(self, graph: EGraph, number: int, way: Implementation) -> float:
        """The price of an implementation of an e-node."""
        price = self._direct.kernel(graph, number, way)
        return price / self._speed if can_be_winograd(graph, way) else price

    def conversion(self, type_: Tensor, source: Layout, target: Layout) -> float:
        """The price of the conversion of a tensor from one layout to another."""
        return self._direct.conversion(type_, source, target)


def can_be_winograd(graph: EGraph, way: Implementation) -> bool:
    """Whether an implementation is a convolution as ``model.kernels.winograd`` replaces it."""
    op = way.operator
    if op.name != "conv2d" or op.get("layout") != "NHWC" or op.get("groups") != 1:
        return False
    type_ = graph.facts(way.node.children[1]).type
    assert isinstance(type_, Tensor)
    extents = stored(type_, way.operands[1]).shape[:2]
    return extents == (3, 3) and op.get("strides") == op.get("dilation") == (1, 1)


def priced(graph: EGraph, plan: Plan, price: Price) -> float:
    """The cost of a plan by other prices."""
    secs = (
        price.kernel(graph, place[0], step.what) if isinstance(step, Choice) else step.price
        for place, step in plan.steps.items()
    )
    return sum(secs)


def compare(model: str) -> list[tuple[float, float]]:
    """What Winograd convolutions would change, for each speed.

    Parameters
    ----------
    model : str
        A model of ``graph_models``.

    Returns
    -------
    ratios : list[tuple[float, float]]
        Two costs over that of the best graph with Winograd convolutions: that of the best graph
        without, and that of the same graph where its convolutions become Winograd ones.
    """
    prepared = prepared_for_import(prepare_graph()(MODELS[model].make()))
    imported = import_function(prepared["main"])
    graph = imported.graph
    graph.rebuild()
    graph.limit = max(MAX_NODES, graph.size)
    saturate(graph, ALL_RULES, time_limit=EXTRACTION_SECS)

    def cheapest(price: Price) -> Plan:
        plan = extract(problem_of(graph, imported.roots, price, True), EXTRACTION_SECS).plan
        assert plan is not None
        return plan

    direct = RooflinePrice(MACHINE)
    chosen = cheapest(direct)
    ratios = []
    for speed in SPEEDS:
        price = WinogradPrice(direct, speed)
        best = priced(graph, cheapest(price), price)
        ratios.append((priced(graph, chosen, direct) / best, priced(graph, chosen, price) / best))
    return ratios


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    args = parser.parse_args(arguments)
    rows = []
    for model in args.models:
        rows.append([model, *(f"{ratio:.3f}" for pair in compare(model) for ratio in pair)])
        print("; ".join(rows[-1]), file=sys.stderr, flush=True)
    header = ["model"]
    for speed in SPEEDS:
        header += [f"none at {speed:g}", f"afterwards at {speed:g}"]
    print(format_table(header, rows, args.markdown))
    return 0


if __name__ == "__main__":
    sys.exit(main())

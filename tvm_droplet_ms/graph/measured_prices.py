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
"""Prices that were measured, where they were, and lower bounds elsewhere. Imports no TVM.

Optimistic pricing: what was never timed costs its roofline, so that only what the cheapest plan
wants has to be timed, and nothing that could have won is left out. Lazy shortest paths do this
("A Unifying Formalism for Shortest Path Problems with Expensive Edge Evaluations via Lazy
Best-First Search over Paths with Edge Selectors", Dellin and Srinivasa, ICAPS 2016).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from .egraph import EGraph
from .implementations import Implementation, Layout
from .kernels import Kernel, conversion_kernel, kernel_of, kernels_of
from .language import Tensor
from .prices import RooflinePrice
from .problem import Choice, Plan, Step


class FoundPlan(NamedTuple):
    """A plan, and the e-graph that it was found in."""

    graph: EGraph
    plan: Plan


class MeasuredPrice:
    """Prices kernels by what they took, and by their rooflines before they were timed.

    Parameters
    ----------
    bound : RooflinePrice
        The rooflines, without ``layout_speeds``: they must be lower bounds.

    Attributes
    ----------
    timed : dict[Kernel, float | None]
        The seconds of what was timed; None for a kernel that could not be.
    share : float
        How many times its roofline a kernel takes that was not timed: 1, and what is typical for
        the timed ones after ``settle``.
    """

    def __init__(self, bound: RooflinePrice) -> None:
        self.timed: dict[Kernel, float | None] = {}
        self.share = 1.0
        self._bound = bound
        self._bounds: dict[Kernel, float] = {}

    def kernel(self, graph: EGraph, number: int, way: Implementation) -> float:
        """The price of an implementation of an e-node."""
        bound = self._bound.kernel(graph, number, way)
        return self._price(kernel_of(graph, number, way), bound)

    def conversion(self, type_: Tensor, source: Layout, target: Layout) -> float:
        """The price of the conversion of a tensor from one layout to another."""
        bound = self._bound.conversion(type_, source, target)
        return self._price(conversion_kernel(type_, source, target), bound)

    def learn(self, secs: Mapping[Kernel, float | None]) -> None:
        """Take what kernels took; None for one that could not be timed."""
        self.timed.update(secs)

    def unknown(self, found: Iterable[FoundPlan]) -> list[Kernel]:
        """The kernels of some plans that were never asked for, each once."""
        listed: dict[Kernel, None] = {}
        for graph, plan in found:
            for _, kernel in kernels_of(graph, plan):
                if kernel is not None and kernel not in self.timed:
                    listed[kernel] = None
        return list(listed)

    def settle(self) -> None:
        """No more is timed: the other kernels are as far from their rooflines as the timed ones.

        Otherwise a plan would be the cheapest because nobody had the time to time it.
        """
        ratios = [
            secs / self._bounds[kernel]
            for kernel, secs in self.timed.items()
            if secs is not None and self._bounds.get(kernel)
        ]
        self.share = max(1.0, median(ratios)) if ratios else 1.0

    def bound_of(self, kernel: Kernel) -> float:
        """The roofline of a kernel that was priced; 0 for any other."""
        return self._bounds.get(kernel, 0.0)

    def repriced(self, found: FoundPlan) -> FoundPlan:
        """A plan with the prices of today."""
        graph, plan = found
        steps: dict[tuple[int, Layout], Step] = {}
        for place, step in plan.steps.items():
            if isinstance(step, Choice):
                price = self.kernel(graph, place[0], step.what)
                steps[place] = step._replace(price=price)
            else:
                type_ = graph.type(place[0])
                price = self.conversion(type_, step.source[1], place[1])
                steps[place] = step._replace(price=price)
        cost = sum(step.price for step in steps.values())
        return FoundPlan(graph, Plan(steps, cost, plan.optimal))

    def _price(self, kernel: Kernel | None, bound: float) -> float:
        if kernel is None:
            return bound
        # A kernel's call is a part of its price, and not of what was timed.
        self._bounds.setdefault(kernel, max(bound - self._bound.call_secs, 0.0))
        secs = self.timed.get(kernel)
        return bound * self.share if secs is None else secs + self._bound.call_secs


def time_what_is_wanted(
    price: MeasuredPrice,
    extract: Callable[[], FoundPlan | None],
    time_kernels: Callable[[Sequence[Kernel]], Mapping[Kernel, float | None]],
    is_due: Callable[[], bool],
    first: Sequence[FoundPlan] = (),
) -> list[FoundPlan]:
    """Extract, time what the plan wants, and extract again, until it wants nothing new.

    What not all plans have is timed before what they share: it decides between them, and there may
    not be time for all.

    Parameters
    ----------
    price : MeasuredPrice
        The prices, which learn.
    extract : Callable[[], FoundPlan | None]
        Finds the cheapest plan by these prices; None where there is none.
    time_kernels : Callable[[Sequence[Kernel]], Mapping[Kernel, float | None]]
        Times kernels, and leaves out those that it had no time for.
    is_due : Callable[[], bool]
        Whether no more is to be timed.
    first : Sequence[FoundPlan]
        Plans whose kernels are timed too, before all others.

    Returns
    -------
    found : list[FoundPlan]
        The plans of all rounds, the last one last.
    """
    found: list[FoundPlan] = []
    while (best := extract()) is not None:
        found.append(best)
        wanted = price.unknown([*first, best])
        if not wanted or is_due():
            break
        known = len(price.timed)
        shared = set.intersection(*(_kernels_of(each) for each in [*first, best]))
        price.learn(time_kernels([kernel for kernel in wanted if kernel not in shared] or wanted))
        if len(price.timed) == known:
            break
    return found


def _kernels_of(found: FoundPlan) -> set[Kernel | None]:
    return {kernel for _, kernel in kernels_of(*found)}

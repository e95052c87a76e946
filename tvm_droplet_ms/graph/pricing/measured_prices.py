# SPDX-License-Identifier: Apache-2.0
"""Prices that were measured, where they were, and lower bounds elsewhere. Imports no TVM.

Optimistic pricing: what was never timed costs its roofline, so that only what the cheapest plan
wants has to be timed, and nothing that could have won is left out. Lazy shortest paths do this
("A Unifying Formalism for Shortest Path Problems with Expensive Edge Evaluations via Lazy
Best-First Search over Paths with Edge Selectors", Dellin and Srinivasa, ICAPS 2016).

Expected prices come before these, since time may end: what was timed of a kind tells what others of
it will likely take, and a plan that is likely to win is known before it is proved that no other is.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

import numpy as np

from ..equality.egraph import EGraph
from ..equality.language import Tensor
from ..extraction.implementations import Implementation, Layout
from ..extraction.prices import RooflinePrice
from ..extraction.problem import Choice, Plan, Step
from .kernels import Kernel, conversion_kernel, kernel_of, kernels_of

FEWEST_SEEN, LIKELY_QUANTILE = 3, 0.25
"""Kernels of a kind that have to be timed before others of the kind are expected to be as far from
their rooflines, and the quantile of how far that is."""

HOPE = 0.5
"""The share of its time that more trials are hoped to bring a kernel to, if its roofline allows. 24
trials more than 8 have brought a product of an LSTM from 384 to 203 us; most kernels gain less."""


Kind = tuple[str, str, bool, bool]
"""Kernels of a kind are about as far from their rooflines."""


class FoundPlan(NamedTuple):
    """A plan, and the e-graph that it was found in."""

    graph: EGraph
    plan: Plan

    @property
    def kernels(self) -> list[Kernel]:
        """Its kernels that are timed, once for each of their steps."""
        return [kernel for _, kernel in kernels_of(*self) if kernel is not None]


class MeasuredPrice:
    """Prices kernels by what they took, and by their rooflines before they were timed.

    - ``bound``: the rooflines, without ``layout_speeds``: they must be lower bounds.
    - ``timed``: the seconds of what was timed; None for a kernel that could not be.
    - ``firm``: those that get no more trials.
    - ``share``: how many times its roofline a kernel takes that was not timed, where too few of its
      kind were: 1, and what is typical for the timed ones after ``settle``.
    """

    def __init__(self, bound: RooflinePrice) -> None:
        self.timed: dict[Kernel, float | None] = {}
        self.firm: set[Kernel] = set()
        self.share = 1.0
        self._quantile: float | None = None
        self._shares: dict[Kind, float] = {}
        self._hoped_for: Callable[[Kernel], bool] = lambda kernel: False
        self._bound = bound
        self._bounds: dict[Kernel, float] = {}

    def kernel(self, graph: EGraph, number: int, way: Implementation) -> float:
        """The price of an implementation of an e-node."""
        bound = self._bound.kernel(graph, number, way)
        return self._price(kernel_of(graph, number, way), bound)

    def conversion(self, type_: Tensor, source: Layout, target: Layout) -> float:
        """The price of converting a tensor from one layout to another."""
        bound = self._bound.conversion(type_, source, target)
        return self._price(conversion_kernel(type_, source, target), bound)

    def learn(self, secs: Mapping[Kernel, float | None]) -> None:
        """Take what kernels took; None for one that could not be timed."""
        self.timed.update(secs)
        self._update()

    def unknown(self, found: Iterable[FoundPlan]) -> list[Kernel]:
        """The kernels of some plans that were never asked for, each once."""
        listed: dict[Kernel, None] = {}
        for each in found:
            for kernel in each.kernels:
                if kernel not in self.timed:
                    listed[kernel] = None
        return list(listed)

    def limits(self, before: FoundPlan, best: FoundPlan, listed: int) -> list[str]:
        """Lines on what the cheapest graph's time goes to.

        ``before``, ``best``: the input, and the cheapest graph. ``listed``: the most kernels to
        name.
        """
        total = best.plan.cost
        if total <= 0:
            return []
        old = Counter(kernel for _, kernel in kernels_of(*before) if kernel is not None)
        new = [(step.price, kernel) for step, kernel in kernels_of(*best) if kernel is not None]
        kept, rest = 0.0, old.copy()
        for price, kernel in new:
            if rest[kernel]:
                rest[kernel] -= 1
                kept += price
        lines = [f"{kept / total:.0%} of the estimate is in kernels that the input has too"]
        shares: dict[Kernel, float] = {}
        for price, kernel in new:
            shares[kernel] = shares.get(kernel, 0.0) + price
        for kernel, price in sorted(shares.items(), key=lambda item: -item[1])[:listed]:
            secs, bound = self.timed.get(kernel), self.bound_of(kernel)
            how = f"at {bound / secs:.0%} of its roofline" if secs else "not timed"
            lines.append(f"{price / total:.0%} {kernel}, {how}")
        return lines

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """Price what was not timed by what was timed of its kind: no lower bound, but likely."""
        self._quantile = LIKELY_QUANTILE
        self._update()
        try:
            yield
        finally:
            self._quantile = None
            self._update()

    @contextmanager
    def hoping(self, but_for: Collection[Kernel]) -> Iterator[None]:
        """Price kernels as if more trials brought them to ``HOPE``, or to their rooflines.

        ``but_for``: those that keep their prices, as firm ones do.
        """
        self._hoped_for = lambda kernel: kernel not in self.firm and kernel not in but_for
        try:
            yield
        finally:
            self._hoped_for = lambda kernel: False

    def hope(self, kernel: Kernel) -> float:
        """The time that more trials may save; 0 for a firm one, or one without a time."""
        secs = self.timed.get(kernel)
        if secs is None or kernel in self.firm:
            return 0.0
        return max(secs - max(self.bound_of(kernel), HOPE * secs), 0.0)

    def settle(self) -> None:
        """No more is timed: the others are as far from their rooflines as what was of their kind.

        Otherwise a plan would be the cheapest because nobody had the time to time it.
        """
        ratios = [ratio for _, ratio in self._ratios()]
        self.share = max(1.0, median(ratios)) if ratios else 1.0
        self._quantile = 0.5
        self._update()

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
        if secs is None:
            return bound * self._share_of(kernel)
        saved = self.hope(kernel) if self._hoped_for(kernel) else 0.0
        return secs - saved + self._bound.call_secs

    def _share_of(self, kernel: Kernel) -> float:
        return self.share if kernel in self.timed else self._shares.get(_kind(kernel), self.share)

    def _update(self) -> None:
        """The times that kernels of each kind are expected to take, in times of their rooflines."""
        self._shares = {}
        if self._quantile is None:
            return
        seen: dict[Kind, list[float]] = {}
        for kernel, ratio in self._ratios():
            seen.setdefault(_kind(kernel), []).append(ratio)
        for kind, ratios in seen.items():
            if len(ratios) >= FEWEST_SEEN:
                self._shares[kind] = max(1.0, float(np.quantile(ratios, self._quantile)))

    def _ratios(self) -> Iterator[tuple[Kernel, float]]:
        """The times of kernels over their rooflines."""
        for kernel, secs in self.timed.items():
            if secs is not None and self._bounds.get(kernel):
                yield kernel, secs / self._bounds[kernel]


def _kind(kernel: Kernel) -> Kind:
    """The operator, its layout, and whether it has groups and cached weights."""
    attributes = dict(kernel.operator.attributes)
    is_grouped = attributes.get("groups", 1) != 1
    return kernel.operator.name, str(attributes.get("layout")), is_grouped, kernel.is_warm

# SPDX-License-Identifier: Apache-2.0
"""Measured kernel prices, with rooflines as lower bounds for untimed kernels. Imports no TVM.

Pricing is optimistic: an untimed kernel costs its roofline. So only kernels of the cheapest plan
must be timed, and no possible winner is missed. Lazy shortest-path search uses the same idea ("A
Unifying Formalism for Shortest Path Problems with Expensive Edge Evaluations via Lazy Best-First
Search over Paths with Edge Selectors", Dellin and Srinivasa, ICAPS 2016).

Expected prices are used before optimistic ones because the time may run out. They predict the time
of a kernel from timed kernels of the same kind. They find a likely winner early, before the
optimistic prices prove that no other plan is cheaper.
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
"""The minimum number of timed kernels of a kind before others of the kind are predicted from them,
and the quantile of their ratios of time to roofline that serves as the prediction."""

HOPE = 0.5
"""The fraction to which more trials are hoped to reduce a kernel's time, if its roofline allows.
For a matrix product of an LSTM, 24 trials after the first 8 reduced the time from 384 to 203 us.
Most kernels gain less."""


Kind = tuple[str, str, bool, bool]
"""The kind of a kernel. Kernels of the same kind have similar ratios of time to roofline."""


class FoundPlan(NamedTuple):
    """A plan and the e-graph from which it was extracted."""

    graph: EGraph
    plan: Plan

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels of the plan that can be timed, one entry per step."""
        return [kernel for _, kernel in kernels_of(*self) if kernel is not None]


class MeasuredPrice:
    """Prices kernels by their measured times, and by their rooflines until they are timed.

    - ``bound``: the rooflines, without ``layout_speeds``, because they must be lower bounds.
    - ``timed``: the seconds of each timed kernel; None for a kernel that cannot be timed.
    - ``firm``: the kernels that get no more trials.
    - ``share``: the assumed ratio of time to roofline for an untimed kernel if too few kernels of
      its kind were timed. It is 1 at first, and the median of the timed kernels after ``settle``.
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
        """Record measured seconds of kernels; None for a kernel that cannot be timed."""
        self.timed.update(secs)
        self._update()

    def unknown(self, found: Iterable[FoundPlan]) -> list[Kernel]:
        """The kernels of some plans without a recorded result, each once."""
        listed: dict[Kernel, None] = {}
        for each in found:
            for kernel in each.kernels:
                if kernel not in self.timed:
                    listed[kernel] = None
        return list(listed)

    def limits(self, before: FoundPlan, best: FoundPlan, listed: int) -> list[str]:
        """Report lines that break down the estimated time of the cheapest graph.

        ``before``: the input. ``best``: the cheapest graph. ``listed``: the maximum number of
        kernels to list.
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
        """Within it, predict untimed kernels from timed ones of their kind, not from rooflines."""
        self._quantile = LIKELY_QUANTILE
        self._update()
        try:
            yield
        finally:
            self._quantile = None
            self._update()

    @contextmanager
    def hoping(self, but_for: Collection[Kernel]) -> Iterator[None]:
        """Within it, price kernels as if more trials had the effect of ``HOPE``.

        Prices do not fall below the rooflines. ``but_for``: kernels that keep their prices, as firm
        kernels do.
        """
        self._hoped_for = lambda kernel: kernel not in self.firm and kernel not in but_for
        try:
            yield
        finally:
            self._hoped_for = lambda kernel: False

    def hope(self, kernel: Kernel) -> float:
        """The seconds that more trials may save; 0 for a firm kernel or one without a time."""
        secs = self.timed.get(kernel)
        if secs is None or kernel in self.firm:
            return 0.0
        return max(secs - max(self.bound_of(kernel), HOPE * secs), 0.0)

    def settle(self) -> None:
        """End timing, and price untimed kernels by the median ratio of time to roofline.

        The median is over timed kernels of the same kind, or over all timed kernels if these are
        too few. With optimistic prices, a plan could win only because it was not measured in time.
        """
        ratios = [ratio for _, ratio in self._ratios()]
        self.share = max(1.0, median(ratios)) if ratios else 1.0
        self._quantile = 0.5
        self._update()

    def bound_of(self, kernel: Kernel) -> float:
        """The roofline of a kernel that was priced; 0 for any other."""
        return self._bounds.get(kernel, 0.0)

    def repriced(self, found: FoundPlan) -> FoundPlan:
        """Return a plan with current prices."""
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
        # The price includes the kernel's call. The measured time does not.
        self._bounds.setdefault(kernel, max(bound - self._bound.call_secs, 0.0))
        secs = self.timed.get(kernel)
        if secs is None:
            return bound * self._share_of(kernel)
        saved = self.hope(kernel) if self._hoped_for(kernel) else 0.0
        return secs - saved + self._bound.call_secs

    def _share_of(self, kernel: Kernel) -> float:
        return self.share if kernel in self.timed else self._shares.get(_kind(kernel), self.share)

    def _update(self) -> None:
        """Recompute the expected ratio of time to roofline for each kind of kernel."""
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
        """The ratio of time to roofline for each timed kernel."""
        for kernel, secs in self.timed.items():
            if secs is not None and self._bounds.get(kernel):
                yield kernel, secs / self._bounds[kernel]


def _kind(kernel: Kernel) -> Kind:
    """The operator, its layout, and whether it has groups and cached weights."""
    attributes = dict(kernel.operator.attributes)
    is_grouped = attributes.get("groups", 1) != 1
    return kernel.operator.name, str(attributes.get("layout")), is_grouped, kernel.is_warm

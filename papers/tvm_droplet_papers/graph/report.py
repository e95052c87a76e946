# SPDX-License-Identifier: Apache-2.0
"""The report of a graph search."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class GraphTimes:
    """The estimate and the times of one whole graph.

    - ``estimate_secs``: the sum of the prices of its e-nodes.
    - ``kernels_secs``: the sum of the best times of its fused kernels, each timed alone.
    - ``whole_secs``: the median time of the whole graph; 0 if it was not timed.
    - ``deviation``: the relative deviation of its outputs from those of the untouched model; see
      ``OutputCheck.deviation``.
    - ``is_refused``: whether the deviation exceeds the tolerance.
    """

    name: str
    estimate_secs: float
    kernels_secs: float
    whole_secs: float
    deviation: float
    is_refused: bool = False

    def __str__(self) -> str:
        whole = f"{self.whole_secs * 1e6:.1f} us" if self.whole_secs else "not timed"
        whole = "refused" if self.is_refused else whole
        return (
            f"{self.name}: whole {whole}, estimate {self._compared(self.estimate_secs)}, kernels "
            f"{self._compared(self.kernels_secs)}, outputs off by {self.deviation:.1e}"
        )

    def _compared(self, secs: float) -> str:
        """Format seconds with their relative error from the time of the whole graph."""
        error = f" ({secs / self.whole_secs - 1:+.0%})" if self.whole_secs else ""
        return f"{secs * 1e6:.1f} us{error}"


@dataclass
class Measured:
    """The measurements for a function.

    - ``kernels``: the number of priced kernels.
    - ``unpriced``: the number of these kernels that could not be timed. Their prices are rooflines.
    - ``untimed``: the number of kernels of the cheapest graph for which the time ran out.
    - ``closer``: the number of kernels that got more trials, because these might have made another
      graph the cheapest.
    - ``trials``: the total number of measured schedules.
    - ``pricing_secs``, ``verifying_secs``: the seconds for pricing and for whole graphs.
    - ``timing_secs``: the seconds within pricing for timing kernels. The rest of pricing is search.
    - ``secs_of``: the seconds of each part of the run.
    - ``graphs``: the compared graphs, the input first.
    - ``taken``: the name of the chosen graph.
    - ``verdict``: the reason for the choice.
    - ``limits``: lines that break down the estimated time of the cheapest graph.
    """

    kernels: int = 0
    unpriced: int = 0
    untimed: int = 0
    closer: int = 0
    trials: int = 0
    pricing_secs: float = 0.0
    verifying_secs: float = 0.0
    timing_secs: float = 0.0
    secs_of: dict[str, float] = field(default_factory=dict)
    graphs: list[GraphTimes] = field(default_factory=list)
    taken: str = "the input"
    verdict: str = ""
    limits: list[str] = field(default_factory=list)

    def whole_secs(self, name: str) -> float:
        """The median time of a whole graph; 0 if it was not run or was refused."""
        return next((graph.whole_secs for graph in self.graphs if graph.name == name), 0.0)

    def lines(self) -> list[str]:
        """The lines of a report."""
        parts = ", ".join(f"{part} {secs:.1f}" for part, secs in self.secs_of.items())
        return [
            f"  {self.kernels} kernels were priced ({self.unpriced} by their rooflines, "
            f"{self.untimed} wanted and not timed, {self.closer} with more trials than the rest), "
            f"{self.trials} trials; pricing {self.pricing_secs:.1f} s, {self.timing_secs:.1f} s of "
            f"it timing; whole graphs {self.verifying_secs:.1f} s",
            *([f"  seconds: {parts}"] if parts else []),
            *(f"  {graph}" for graph in self.graphs),
            f"  taken: {self.taken}; {self.verdict}",
            *(f"  limit: {limit}" for limit in self.limits),
        ]


@dataclass
class FunctionReport:
    """The outcome of the search of one function.

    - ``note``: why the function was left unchanged, or what went wrong; empty otherwise.
    - ``search``: "saturated": all equivalent graphs fit the limit. "saturated to the limit": they
      did not. "tree search": they did not, and a tree search followed. "none": the function was
      left unchanged.
    - ``optimal``: whether no cheaper graph exists under these rules and prices. True only after a
      complete saturation.
    - ``before_secs``, ``after_secs``: the prices of the original graph and of the new graph.
    - ``nodes``: the number of e-nodes at the end.
    - ``rules``: how often each rule changed the e-graph.
    - ``conversions``: the number of layout conversions.
    - ``weight_bytes_before``, ``weight_bytes_after``: the bytes of the constants.
    - ``search_secs``: the seconds of the whole search.
    - ``measured``: the measurements; None if prices are estimates.
    - ``notes``: further messages for the user. Duplicates are printed once.
    """

    name: str
    note: str = ""
    search: str = "none"
    optimal: bool = False
    before_secs: float = 0.0
    after_secs: float = 0.0
    nodes: int = 0
    rules: dict[str, int] = field(default_factory=dict)
    conversions: int = 0
    weight_bytes_before: int = 0
    weight_bytes_after: int = 0
    search_secs: float = 0.0
    measured: Measured | None = None
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.search == "none":
            return "\n".join([f"{self.name}: left alone, {self.note}", *self._notes()])
        proof = "no cheaper graph under these rules and prices" if self.optimal else self.search
        lines = [
            f"{self.name}: estimated {self.before_secs * 1e6:.1f} us before, "
            f"{self.after_secs * 1e6:.1f} us after ({proof})",
            f"  {self.nodes} e-nodes, {self.conversions} layout conversions, "
            f"{self.search_secs:.2f} s, weights {self.weight_bytes_before} bytes before, "
            f"{self.weight_bytes_after} after",
        ]
        lines += self.measured.lines() if self.measured else []
        lines += [f"  {name}: {count}" for name, count in self.rules.items()]
        return "\n".join([*lines, *([f"  {self.note}"] if self.note else []), *self._notes()])

    def _notes(self) -> list[str]:
        return [f"  note: {note}" for note in dict.fromkeys(self.notes)]

# SPDX-License-Identifier: Apache-2.0
"""The report of a graph search."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class GraphTimes:
    """The estimate and the times of one whole graph.

    - ``estimate_secs``: the sum of the prices of its e-nodes.
    - ``kernels_secs``: the sum of the best times of its fused kernels, each alone.
    - ``whole_secs``: the median time of the whole graph; 0 where it was not timed.
    - ``deviation``: how far its outputs differ from the untouched model's, relative to the largest.
    - ``is_refused``: whether they differ by too much.
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
        """Seconds, and how far they are from the time of the whole graph."""
        error = f" ({secs / self.whole_secs - 1:+.0%})" if self.whole_secs else ""
        return f"{secs * 1e6:.1f} us{error}"


@dataclass
class Measured:
    """The measurements for a function.

    - ``kernels``: the kernels whose prices were asked for.
    - ``unpriced``: those of them that could not be timed: their rooflines are their prices.
    - ``untimed``: the kernels of the cheapest graph that there was no time for.
    - ``closer``: the kernels that got more trials, because these might have made another graph the
      cheapest.
    - ``trials``: the schedules that were measured, in all.
    - ``pricing_secs``, ``verifying_secs``: the seconds of pricing, and of whole graphs.
    - ``timing_secs``: those of pricing in which kernels were timed: the rest is the search.
    - ``secs_of``: those by part.
    - ``graphs``: the graphs that were run, the input first.
    - ``taken``: the name of the graph that was taken.
    - ``verdict``: why.
    - ``limits``: what the cheapest graph's time goes to.
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
        """The median time of a whole graph; 0 where it was not run, or refused."""
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

    - ``note``: why it was left alone, or what went wrong; empty if nothing did.
    - ``search``: "saturated": all equal graphs fit the limit. "tree search": they did not. "none":
      left alone.
    - ``optimal``: whether no cheaper graph exists under these rules and prices. Only after a
      saturation.
    - ``before_secs``, ``after_secs``: the prices of the graph as it came and as it is now.
    - ``nodes``: e-nodes at the end.
    - ``rules``: how often each rule changed the e-graph.
    - ``conversions``: how many tensors change their layout.
    - ``weight_bytes_before``, ``weight_bytes_after``: bytes of the constants.
    - ``search_secs``: seconds of everything.
    - ``measured``: what was measured; None where prices are estimates.
    - ``notes``: what else the user should know, each once.
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

# SPDX-License-Identifier: Apache-2.0
"""The tables of ``graphs``. Imports no TVM."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import geometric_mean, median
from typing import Any

from tvm_droplet_ms.display.tables import align

from ..searches.compare_report import spread

IMPORTED, PREPARED, FOUND, BY_HAND = "as imported", "prepared", "found", "by hand"
COMBINED = "prepared, matmuls combined"
"""The names of a run's graphs. TVM's ``CombineParallelMatmul`` makes the last one."""

SPEED_HEADER = (
    "model",
    "seeds",
    "found",
    "prepared / imported",
    "found / by hand",
    "found / combined",
    "ms",
    "deviation",
    "e-nodes",
    "search s",
    "measuring s",
    "trials",
    "what limits the gain",
)

LEAST_DIFFERENCE = 0.05
"""The smallest relative difference in time at which two graphs count as ordered."""

Run = Mapping[str, Any]


def speed_table(runs: Mapping[str, Sequence[Run]]) -> str:
    """A table with one line per model; speeds are geometric means over the seeds with the range."""
    rows = [_row(model, results) for model, results in runs.items()]
    return align([SPEED_HEADER, *rows])


def _row(model: str, runs: Sequence[Run]) -> list[str]:
    searches = [run["search"] for run in runs]
    measured = [search["measured"] or {} for search in searches]
    searching = [m.get("pricing_secs", 0.0) - m.get("timing_secs", 0.0) for m in measured]
    times = [run["secs"].get(FOUND) for run in runs]
    return [
        model,
        str(len(runs)),
        _spread([speed(run) for run in runs]),
        _spread([_ratio(run, IMPORTED, PREPARED) for run in runs]),
        _spread([_ratio(run, BY_HAND, FOUND) for run in runs]),
        _spread([_ratio(run, COMBINED, FOUND) for run in runs]),
        f"{1e3 * median(median(secs) for secs in times if secs):.2f}" if any(times) else "-",
        f"{max(run['deviations'].get(FOUND, 0.0) for run in runs):.1e}",
        f"{median(search['nodes'] for search in searches):.0f}",
        f"{median(searching):.0f}",
        f"{median(s['search_secs'] - each for s, each in zip(searches, searching)):.0f}",
        f"{median(m.get('trials', 0) for m in measured):.0f}",
        _limit(searches[0]),
    ]


def _spread(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if len(known) == 1:
        return f"{known[0]:.2f}"
    return spread(known) if known else "-"


def _ratio(run: Run, over: str, under: str) -> float | None:
    """The median over the rounds of the ratio of one graph's time to another's."""
    above, below = run["secs"].get(over), run["secs"].get(under)
    if not above or not below:
        return None
    return float(median(a / b for a, b in zip(above, below, strict=True)))


def speed(run: Run) -> float | None:
    """The time of the faster of the imported and prepared graphs over the time of the found graph.

    None if the graphs were not timed. The speed is 1 if nothing was compared because the search
    kept its input and there is no other graph.
    """
    if not run["secs"] and not run["deviations"]:
        return 1.0
    ratios = [_ratio(run, name, FOUND) for name in (IMPORTED, PREPARED)]
    known = [ratio for ratio in ratios if ratio is not None]
    return min(known) if known else None


def _limit(search: Mapping[str, Any]) -> str:
    measured = search["measured"]
    if measured is None:
        return str(search["note"])
    return "; ".join([measured["verdict"], *measured["limits"][:2]]).replace("|", "/")


def estimate_table(runs: Mapping[str, Sequence[Run]]) -> str:
    """A table of the quality of whole-graph estimates, for each model and for all models."""
    header = ("model", "graphs", "error of the estimate", "of the kernels' sum", "order right")
    every = [run for results in runs.values() for run in results]
    rows = [_estimate_row(model, results) for model, results in runs.items()]
    return align([header, *rows, _estimate_row("all", every)])


def _estimate_row(name: str, runs: Sequence[Run]) -> list[str]:
    timed = [_timed_graphs(run) for run in runs]
    graphs = [graph for each in timed for graph in each]
    if not graphs:
        return [name, "0", "-", "-", "-"]
    errors = [
        median(abs(graph[kind] / graph["whole_secs"] - 1) for graph in graphs)
        for kind in ("estimate_secs", "kernels_secs")
    ]
    orders = [right for each in timed for right in _orders(each)]
    shown = f"{sum(orders)} of {len(orders)}" if orders else "-"
    return [name, str(len(graphs)), *(f"{error:.0%}" for error in errors), shown]


def _timed_graphs(run: Run) -> list[Mapping[str, Any]]:
    measured = run["search"]["measured"] or {}
    return [graph for graph in measured.get("graphs", []) if graph["whole_secs"] > 0]


def _orders(graphs: Sequence[Mapping[str, Any]]) -> Iterator[bool]:
    """For each pair of graphs with different times, whether the estimates have the same order."""
    for one, other in combinations(graphs, 2):
        difference = one["whole_secs"] / other["whole_secs"] - 1
        if max(difference, 1 / (1 + difference) - 1) >= LEAST_DIFFERENCE:
            yield (one["estimate_secs"] < other["estimate_secs"]) == (difference < 0)


def mean_speed(runs: Mapping[str, Sequence[Run]]) -> float | None:
    """The geometric mean of the models' speeds over the imported graphs; None without any."""
    speeds = [
        geometric_mean(ratios)
        for results in runs.values()
        if (ratios := [r for run in results if (r := _ratio(run, IMPORTED, FOUND)) is not None])
    ]
    return geometric_mean(speeds) if speeds else None

# SPDX-License-Identifier: Apache-2.0
"""The tables of ``graphs``. Imports no TVM."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from statistics import geometric_mean, median
from typing import Any

from tvm_droplet_ms.report import align

from ..searches.compare_report import spread

IMPORTED, PREPARED, FOUND, BY_HAND = "as imported", "prepared", "found", "by hand"
COMBINED = "prepared, matmuls combined"
"""The graphs of a run. TVM's ``CombineParallelMatmul`` makes the last one."""

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
"""Two graphs whose times differ by less have no order that an estimate should get right."""

Run = Mapping[str, Any]


def speed_table(runs: Mapping[str, Sequence[Run]]) -> str:
    """A line for each model; speeds are means over the seeds, with the smallest and the largest."""
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
    """The median over the rounds of one graph's time over another's."""
    above, below = run["secs"].get(over), run["secs"].get(under)
    if not above or not below:
        return None
    return float(median(a / b for a, b in zip(above, below, strict=True)))


def speed(run: Run) -> float | None:
    """The time of the better of the graphs as imported and as prepared over that of what was found.

    None where it was not timed; 1 where nothing was compared, since the input was kept and is the
    only graph.
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
    """The quality of the estimates of whole graphs, by model and for all."""
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
    """For each pair that differs, whether the estimates have its order."""
    for one, other in combinations(graphs, 2):
        difference = one["whole_secs"] / other["whole_secs"] - 1
        if max(difference, 1 / (1 + difference) - 1) >= LEAST_DIFFERENCE:
            yield (one["estimate_secs"] < other["estimate_secs"]) == (difference < 0)


def mean_speed(runs: Mapping[str, Sequence[Run]]) -> float | None:
    """The geometric mean of the models' speeds over the graphs as imported; None without any."""
    speeds = [
        geometric_mean(ratios)
        for results in runs.values()
        if (ratios := [r for run in results if (r := _ratio(run, IMPORTED, FOUND)) is not None])
    ]
    return geometric_mean(speeds) if speeds else None

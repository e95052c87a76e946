# SPDX-License-Identifier: Apache-2.0
"""The comparison of searched graphs: its tables, and a run with made-up times."""

import pytest
import small_models
from stub_bench import StubBench, whole_block

from benchmarks.graphs import graphs_run
from benchmarks.graphs.graphs_report import (
    BY_HAND,
    COMBINED,
    FOUND,
    IMPORTED,
    PREPARED,
    estimate_table,
    mean_speed,
    speed,
    speed_table,
)
from benchmarks.graphs.graphs_run import combine_matmuls
from benchmarks.store import Task
from benchmarks.zoo.graph_models import GraphModel
from tvm_droplet_papers.graph import measured_search
from tvm_droplet_papers.graph.pricing import workbench


def made_up(secs, graphs=()):
    measured = {
        "pricing_secs": 30.0,
        "timing_secs": 20.0,
        "trials": 64,
        "graphs": list(graphs),
        "verdict": "a tie",
        "limits": ["half | of it"],
    }
    search = {"nodes": 200, "search_secs": 100.0, "measured": measured, "note": ""}
    return {"secs": secs, "deviations": {FOUND: 2e-6}, "search": search}


def cells_of(table):
    return [cell.strip() for cell in table.splitlines()[-1].strip("|").split("|")]


def test_speed_is_over_the_better_graph():
    run = made_up({IMPORTED: [4.0, 4.0], PREPARED: [3.0, 3.0], FOUND: [2.0, 2.0]})
    assert speed(run) == pytest.approx(1.5)
    assert mean_speed({"m": [run]}) == pytest.approx(2.0)
    assert speed(made_up({PREPARED: [3.0]})) is None
    assert speed(made_up({})) is None, "all were refused for their outputs"


def test_row_of_a_model():
    secs = {IMPORTED: [4.0, 4.0], PREPARED: [3.0, 3.0], FOUND: [2.0, 2.0], BY_HAND: [1.0, 1.0]}
    secs[COMBINED] = [2.5, 2.5]
    cells = cells_of(speed_table({"m": [made_up(secs)]}))
    # 30 - 20 seconds of search, and the rest of 100.
    expected = ["m", "1", "1.50", "1.33", "0.50", "1.25", "2000.00", "2.0e-06", "200"]
    assert cells == [*expected, "10", "90", "64", "a tie; half / of it"]


def test_errors_and_orders_of_estimates():
    graphs = [
        {"whole_secs": 1.0, "estimate_secs": 1.1, "kernels_secs": 0.8},
        {"whole_secs": 1.02, "estimate_secs": 0.5, "kernels_secs": 1.0},
        {"whole_secs": 2.0, "estimate_secs": 1.0, "kernels_secs": 2.0},
        {"whole_secs": 0.0, "estimate_secs": 9.0, "kernels_secs": 9.0},
    ]
    cells = cells_of(estimate_table({"m": [made_up({}, graphs)]}))
    # The first two differ by less than 5%; of the other pairs the first is in the wrong order. The
    # last graph was refused.
    assert cells == ["all", "3", "50%", "2%", "1 of 2"]


def compared(bench, directory, monkeypatch, *, is_imported):
    """A run of a small model on a stub."""
    monkeypatch.setattr(workbench, "Workbench", bench.make)
    monkeypatch.setattr(graphs_run, "MODELS", {"small": GraphModel(small_models.repvgg_block)})
    settings = {"model": "small", "seed": 0, "minutes": 0.2, "trials": 10}
    return graphs_run.search_and_compare(Task(settings | {"imported": is_imported}, directory))


@pytest.mark.parametrize("is_faster", [True, False])
def test_run_with_made_up_times(tmp_path, monkeypatch, is_faster):
    bench = StubBench(lambda kernel: 1e-3, whole_block(1.0, 0.5 if is_faster else 1.0))
    monkeypatch.setattr(graphs_run, "Workbench", bench.make)
    assert measured_search.LEVELS[:2] == (4, 8)
    result = compared(bench, tmp_path, monkeypatch, is_imported=True)
    assert set(result["secs"]) == {IMPORTED, PREPARED, FOUND}
    assert speed(result) == pytest.approx(2.0 if is_faster else 1.0)
    assert max(result["deviations"].values()) < 1e-5
    # In the comparison each graph gets levels up to the trials, in turns from both ends.
    count = 3 if is_faster else 2
    tuned = [(id(graph), trials) for graph, trials, _ in bench.tuned][-3 * count :]
    order = [graph for graph, _ in tuned[:count]]
    assert len(set(order)) == count
    assert tuned == [
        *((graph, 4) for graph in order),
        *((graph, 8) for graph in order[::-1]),
        *((graph, 10) for graph in order),
    ]


def test_input_that_was_kept_is_not_compared_with_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(graphs_run, "_compiled", None)
    result = compared(StubBench(lambda kernel: 1e-3), tmp_path, monkeypatch, is_imported=False)
    assert result["search"]["measured"]["taken"] == "the input"
    assert result["secs"] == {} and speed(result) == 1.0
    cells = cells_of(speed_table({"m": [result]}))
    assert cells[2:7] == ["1.00", "-", "-", "-", "-"]


def test_combined_matmuls_compute_the_same():
    mod = small_models.attention()
    assert combine_matmuls(small_models.repvgg_block()) is None
    combined = combine_matmuls(mod)
    assert [str(each).count("R.matmul") for each in (mod, combined)] == [5, 3]
    small_models.check_outputs(mod, combined, 1e-5)

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
"""The tables of ``graph_search``. Imports no TVM."""

from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

from .live.tables import format_table

Lines = Sequence[dict[str, Any]]

_COLUMNS = ("saturation", "backtracking", "random", "tree search")


def extraction_table(lines: Lines, markdown: bool) -> str:
    """What the largest saturated e-graph of each model costs, as shares of the input's cost.

    Parameters
    ----------
    lines : Sequence[dict[str, Any]]
        Finished searches.
    markdown : bool
        Whether to print Markdown.
    """
    header = ["model", "limit", "e-nodes", "all that rules give", "input us", "program %"]
    header += ["bound %", "tree greedy %", "DAG greedy %", "saturating s", "extracting s"]
    best: dict[str, dict[str, Any]] = {}
    for line in lines:
        if line["method"] == "saturation":
            other = best.get(line["model"])
            best[line["model"]] = line if not other or line["limit"] > other["limit"] else other
    rows = []
    for model, line in best.items():
        shares = [_percent(line[name] / line["input"]) for name in ("cost", "bound", "tree", "dag")]
        secs = [f"{line[name]:.2f}" for name in ("saturating_secs", "extracting_secs")]
        size = [str(line["limit"]), str(line["nodes"]), "yes" if line["complete"] else "no"]
        rows.append([model, *size, f"{1e6 * line['input']:.1f}", *shares, *secs])
    return format_table(header, rows, markdown)


def search_table(lines: Lines, markdown: bool) -> str:
    """The cost that each way to search reaches under each limit, as a share of the input's cost,
    and the seconds of the processor that it takes.

    Parameters
    ----------
    lines : Sequence[dict[str, Any]]
        Finished searches.
    markdown : bool
        Whether to print Markdown.
    """
    columns = dict.fromkeys([*_COLUMNS, *(line["method"] for line in lines)])
    header = ["model", "limit", "seeds", *(f"{name} %" for name in columns)]
    header += [f"{name} s" for name in columns]
    keys = dict.fromkeys((line["model"], line["limit"]) for line in lines)
    rows = []
    for model, limit in keys:
        here = [line for line in lines if (line["model"], line["limit"]) == (model, limit)]
        by_method = {name: [e for e in here if e["method"] == name] for name in columns}
        lists = by_method.values()
        costs = [_mean_of(each, lambda e: 100 * e["cost"] / e["input"], 2) for each in lists]
        secs = [_mean_of(each, lambda e: e["secs"], 1) for each in lists]
        rows.append([model, str(limit), str(len(by_method["tree search"])), *costs, *secs])
    return format_table(header, rows, markdown)


def _mean_of(found: Lines, value: Callable[[dict[str, Any]], float], digits: int) -> str:
    return f"{mean(map(value, found)):.{digits}f}" if found else "-"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"

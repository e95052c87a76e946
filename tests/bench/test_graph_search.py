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
"""The comparison of ways to search a graph: tables, resume, and searches of a small model."""

import json
from functools import partial

import pytest

from tvm_droplet_ms.bench import graph_search
from tvm_droplet_ms.bench.graph_models import GraphModel
from tvm_droplet_ms.bench.graph_models.recurrent import lstm
from tvm_droplet_ms.bench.graph_search_report import search_table
from tvm_droplet_ms.bench.graph_search_run import METHODS, Searched


def test_small_model_is_searched_and_not_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(graph_search, "MODELS", {"lstm": GraphModel(partial(lstm, 3, 64))})
    out = tmp_path / "searched.jsonl"
    arguments = ["--out", str(out), "--models", "lstm", "--limits", "500"]
    arguments += ["--seeds", "0", "1", "--states", "3"]
    assert graph_search.main(arguments) == 0
    lines = [json.loads(text) for text in out.read_text().splitlines()]
    # What is not random has one seed.
    assert len(lines) == 6
    costs = {line["method"]: line["cost"] for line in lines}
    (saturated,) = [line for line in lines if line["method"] == "saturation"]
    assert saturated["complete"] and saturated["cost"] < saturated["input"]
    assert saturated["cost"] == pytest.approx(saturated["bound"], rel=1e-3)
    # Nothing is cheaper than what all rules give together, greedy extractions included.
    for cost in (*costs.values(), saturated["tree"], saturated["dag"]):
        assert cost >= saturated["cost"] * (1 - 1e-6)
    assert costs["random"] == pytest.approx(saturated["cost"])

    # A line that a stop has torn is searched anew, and the others are not.
    torn = out.read_text()[:-20]
    out.write_text(torn + "\n")
    monkeypatch.setattr(Searched, "run", lambda *_: {"input": 1.0, "cost": 0.5, "secs": 1.0})
    assert graph_search.main(arguments) == 0
    assert "torn" in capsys.readouterr().err
    assert len(graph_search.read(out)) == 6


def test_limit_is_kept():
    searched = Searched(lstm(3, 64))
    for method in METHODS.keys() - {"backtracking"}:
        assert searched.run(method, 80, 0, 4)["nodes"] <= 80


def test_costs_are_means_of_shares_of_the_input():
    line = {"model": "m", "limit": 500, "input": 2.0, "secs": 3.0}
    lines = [
        {**line, "method": "saturation", "seed": 0, "cost": 1.0},
        {**line, "method": "tree search", "seed": 0, "cost": 1.2},
        {**line, "method": "tree search", "seed": 1, "cost": 1.6},
    ]
    row = search_table(lines, True).splitlines()[-1]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells == ["m", "500", "2", "50.00", "-", "-", "70.00", "3.0", "-", "-", "3.0"]

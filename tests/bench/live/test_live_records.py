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
"""The latencies of a comparison as a file."""

from pathlib import Path

import pytest

from tvm_droplet_ms.bench.live.comparison import LayerResults, Run
from tvm_droplet_ms.bench.live.records import main, read_records, report, write_records

DATA = Path(__file__).parents[3] / "docs" / "data"


def _results(latencies: dict[tuple[str, int, int], float | None]) -> LayerResults:
    results = LayerResults()
    for (method, seed, checkpoint), secs in latencies.items():
        results.runs[method, seed] = Run([], 12.0, 0.0, "")
        if secs is not None:
            kernel = {"error": None, "median": secs, "quartiles": [secs, secs]}
            results.kernels[method, seed, checkpoint] = kernel
    return results


def test_latencies_are_read_as_they_were_written(tmp_path: Path):
    latencies: dict[tuple[str, int, int], float | None] = {
        ("evolutionary", 0, 8): 2e-3,
        ("evolutionary", 0, 16): 1e-3,
        ("droplet", 0, 8): 1e-3,
        ("droplet", 0, 16): None,
    }
    path = tmp_path / "live.csv"
    write_records(path, {"dense": _results(latencies)}, [8, 16])
    layers, checkpoints = read_records(path)
    assert checkpoints == [8, 16]
    for key, secs in latencies.items():
        assert layers["dense"].latency(*key) == (None if secs is None else pytest.approx(secs))
    text = report(layers, checkpoints, "evolutionary", markdown=False)
    assert "2.000 (2.000 to 2.000), dense 2.00" in text
    assert [line.split()[-1] for line in text.splitlines()[-2:]] == ["12", "12"]


@pytest.mark.parametrize("path", sorted(DATA.glob("live*.csv")), ids=lambda path: path.stem)
def test_kept_results_can_be_printed(path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([str(path), "--markdown"]) == 0
    assert "### All layers" in capsys.readouterr().out

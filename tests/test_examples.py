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
"""What the long examples rely on, without their long runs."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm import te
from tvm.s_tir.meta_schedule.testing import te_workload

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_every_layer_of_the_live_comparison_can_be_made(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import compare_live

    assert len(compare_live.LAYERS) >= 8
    for _, function, shape in [*compare_live.LAYERS.values(), *compare_live.RESNET.values()]:
        te.create_prim_func(getattr(te_workload, function)(*shape))


def test_the_layers_of_the_transfer_experiment_are_those_of_the_paper(
    monkeypatch: pytest.MonkeyPatch,
):
    """Their outputs: half the size where the stride is 2."""
    monkeypatch.syspath_prepend(EXAMPLES)
    import compare_live

    outputs = {}
    for name, (_, function, shape) in compare_live.RESNET.items():
        *_, output = getattr(te_workload, function)(*shape)
        outputs[name] = tuple(int(size) for size in output.shape)
    assert outputs == {
        "C1": (1, 112, 112, 64),
        "C2": (1, 56, 56, 64),
        "C3": (1, 56, 56, 64),
        "C4": (1, 28, 28, 128),
        "C5": (1, 28, 28, 128),
        "C6": (1, 28, 28, 128),
        "C7": (1, 14, 14, 256),
        "C8": (1, 14, 14, 256),
        "C9": (1, 14, 14, 256),
        "matmul_1024": (1024, 1024),
    }


def test_seconds_to_nearly_the_best(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    import _compare_report

    def run(*secs: float) -> dict[str, Any]:
        trials = [{"run_secs": [one], "elapsed": 10.0 * i} for i, one in enumerate(secs, start=1)]
        return {"trials": trials}

    results = _compare_report.Results()
    results.runs = {("droplet", 0): run(3.0, 1.04, 1.0), ("droplet", 1): run(3.0, 1.06)}
    assert results.secs_to_best("droplet", 0) is None
    results.kernels = {("droplet", 0, 3): {"median": 1.0, "error": None}}
    assert results.secs_to_best("droplet", 0) == 20.0
    assert results.secs_to_best("droplet", 1) == math.inf
    assert results.secs_to_best("droplet", 2) is None


def test_the_interval_of_the_live_comparison_draws_layers(monkeypatch: pytest.MonkeyPatch):
    """Of two layers whose seeds agree, the mean is one layer's, the other's or between."""
    monkeypatch.syspath_prepend(EXAMPLES)
    import _compare_report

    assert _compare_report._interval([[2.0, 2.0, 2.0], [0.5, 0.5]]) == " (0.500 to 2.000)"
    assert _compare_report._interval([[1.1, None]] * 4) == " (1.100 to 1.100)"
    assert _compare_report._interval([[None], []]) == ""
    low, high = _compare_report._interval([[0.8, 1.25]] * 8).strip(" ()").split(" to ")
    # Of 16 values of +-0.223, the deviation of the mean is 0.223 / 4: 0.896 to 1.116 for 95%.
    assert float(low) == pytest.approx(0.896, abs=0.02)
    assert float(high) == pytest.approx(1.116, abs=0.02)


@pytest.mark.parametrize("sign, accuracy", [(-1.0, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("own", [0, 5])
def test_a_model_is_judged_on_what_it_has_not_learned(
    sign: float, accuracy: float, own: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(EXAMPLES)
    import compare_models
    from _model_data import SpaceData

    def make(name: str) -> SpaceData:
        secs = np.arange(1.0, 21.0)
        return SpaceData(name, hash(name), secs, secs[:, None], secs[:, None], [], {"trees": 7.0})

    learned: list[tuple[str, set[int]]] = []
    tested: set[int] = set()

    def learn(learning, seed):
        learned.extend((data.name, set(rows.tolist())) for data, rows in learning)

        def score(data: SpaceData, rows: np.ndarray) -> np.ndarray:
            tested.update(rows.tolist())
            return sign * data.secs[rows]

        return score

    model = compare_models.Model("trees", learn)
    found = compare_models.judge(make("held out"), [make("other")], model, own, seed=0)
    ((name, rows),) = learned
    assert name == ("held out" if own else "other")
    assert not own or (len(rows) == own and not rows & tested and len(rows | tested) == 20)
    assert found["programs"] == len(tested) == 20 - own
    assert found["pairwise"] == accuracy
    assert (found["top_1"] == 1.0) == (accuracy == 1.0)
    assert found["encode_us"] == 7.0

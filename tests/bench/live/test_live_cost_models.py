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
"""The comparison of cost models: its training set and its test set."""

import numpy as np
import pytest

from tvm_droplet_ms.bench.live.cost_model_data import SpaceData
from tvm_droplet_ms.bench.live.cost_models import Model, judge


def _space(name: str) -> SpaceData:
    secs = np.arange(1.0, 21.0)
    return SpaceData(name, hash(name), secs, {"trees": secs[:, None]}, [], {"trees": 7.0})


@pytest.mark.parametrize("sign, accuracy", [(-1.0, 1.0), (1.0, 0.0)])
@pytest.mark.parametrize("own", [0, 5])
def test_model_is_judged_on_programs_that_it_was_not_trained_on(
    sign: float, accuracy: float, own: int
):
    learned: list[tuple[str, set[int]]] = []
    tested: set[int] = set()

    def learn(learning, seed):
        learned.extend((space.name, set(rows.tolist())) for space, rows in learning)

        def score(space: SpaceData, rows: np.ndarray) -> np.ndarray:
            tested.update(rows.tolist())
            return sign * space.secs[rows]

        return score

    found = judge(_space("held out"), [_space("other")], Model("trees", learn), own, seed=0)
    ((name, rows),) = learned
    assert name == ("held out" if own else "other")
    assert not own or (len(rows) == own and not rows & tested and len(rows | tested) == 20)
    assert found["programs"] == len(tested) == 20 - own
    assert found["pairwise"] == accuracy
    assert (found["top_1"] == 1.0) == (accuracy == 1.0)
    assert found["encode_us"] == 7.0

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

"""The comparison of adaptations: what they learn from, and what they are judged on."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tvm_droplet_ms.bench.live import adaptations
from tvm_droplet_ms.bench.live.adaptations import BATCH, SHOWN, learning_curve
from tvm_droplet_ms.bench.live.cost_model_data import SpaceData
from tvm_droplet_ms.cost_model.adaptation import MeasuredTask
from tvm_droplet_ms.cost_model.features.program_features import FEATURES


class Noted:
    """Ranks rightly once it has learned, and notes what it is given."""

    is_trained = True

    def __init__(self) -> None:
        self.learned: list[list[float]] = []
        self.judged: list[list[float]] = []

    def learn(self, tasks: Sequence[MeasuredTask]) -> None:
        (task,) = tasks
        assert [row[0] for row in task.features] == task.secs
        self.learned.append(task.secs)

    def predict(self, features: np.ndarray, task: MeasuredTask) -> np.ndarray:
        assert task.secs == (self.learned[-1] if self.learned else [])
        self.judged.append(features[:, 0].tolist())
        return -features[:, 0] if self.learned else np.zeros(len(features))


def test_programs_learned_from_are_not_judged():
    secs = np.arange(1.0, 101.0)
    noted = Noted()
    assert learning_curve(noted, secs[:, None], secs, seed=0) == [0.5, 1.0, 1.0, 1.0, 1.0]
    assert [len(known) for known in noted.learned] == list(range(BATCH, SHOWN[-1] + 1, BATCH))
    # Each batch adds to those before.
    for fewer, more in zip(noted.learned, noted.learned[1:], strict=False):
        assert more[: len(fewer)] == fewer
    assert len(noted.judged) == len(SHOWN)
    for judged in noted.judged:
        assert sorted(judged + noted.learned[-1]) == secs.tolist()


def test_sequence_hands_the_source_on(monkeypatch: pytest.MonkeyPatch):
    """The source of each space is what the one before left; all are judged first."""

    class Source:
        def __init__(self, number: int) -> None:
            self.number = number

        def predict(self, features: np.ndarray) -> np.ndarray:
            sign = 1.0 if self.number % 2 else -1.0
            return sign * features[:, 0]

    class Adapted(Noted):
        def __init__(self, source: Source, *, momentum: float, seed: int) -> None:
            super().__init__()
            self.source = Source(source.number + 1)

    monkeypatch.setattr(adaptations, "AdaptedNetwork", Adapted)
    secs = np.arange(1.0, 101.0)
    spaces = [SpaceData(name, 0, secs, {"pacm": secs[:, None]}, [], {}) for name in "abc"]
    assert adaptations.in_sequence(Source(0), spaces, 0.99, 0) == [1.0, 0.0, 1.0]


def test_source_is_trained_once_and_read_again(tmp_path: Path):
    features = np.random.default_rng(0).random((40, FEATURES), dtype=np.float32)
    space = SpaceData("a", 0, 1.0 + features[:, 0].astype(float), {"trees": features}, [], {})
    path = tmp_path / "some/trees.model"
    made = adaptations.source_model("trees", [space], path)
    written = path.read_bytes()
    again = adaptations.source_model("trees", [], path)
    assert path.read_bytes() == written
    np.testing.assert_array_equal(again.model.predict(features), made.model.predict(features))

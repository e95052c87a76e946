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
"""Shared fixtures of the tests of measured spaces."""

import re

import pytest

from tvm_droplet_ms.bench.collection import Collection
from tvm_droplet_ms.bench.definitions import trust

trust(
    "replaying:annotated",
    "replaying:tiled",
    "test_compare:tiny",
    *(f"test_compare_transfer:{name}" for name in ("short", "middle", "long")),
)


@pytest.fixture
def made_up_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure nothing: a module's time follows from the tiles that it has."""

    def build(self: Collection, modules: dict, progress: object) -> None:
        for name, make in modules.items():
            if name not in self.builds:
                loops = re.findall(
                    r"T\.(?:grid|serial|vectorized|unroll)\(([\d, ]+)\)", str(make())
                )
                extents = [int(n) for loop in loops for n in loop.split(",")]
                secs = 1e-6 * sum(extents)
                self._add({"module": name, "build_secs": 0.5, "failure": None, "made_up": secs})

    def measure(self: Collection, modules: list, passes: range, progress: object) -> None:
        for number in passes:
            for name in modules:
                if number not in self.times[name]:
                    secs = self.builds[name]["made_up"] * (1 + 0.01 * number)
                    self._add({"module": name, "pass": number, "secs": secs, "run_secs": 0.1})

    monkeypatch.setattr(Collection, "build", build)
    monkeypatch.setattr(Collection, "measure", measure)

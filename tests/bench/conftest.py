# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures of the tests of measured spaces."""

import re
import sys
from pathlib import Path

import pytest
from tile_spaces import ROWS

from tvm_droplet_ms.bench.definition import trust
from tvm_droplet_ms.bench.making.collection import Collection

# Small models and benches without measurements are shared with the tests of graphs.
sys.path.append(str(Path(__file__).parents[1] / "graph"))

trust(
    "replaying:annotated",
    "replaying:tiled",
    *(f"tile_spaces:{name}" for name in ROWS),
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

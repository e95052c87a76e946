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
"""A builder and a runner that answer from a sample, and simulate what it does not have."""

from functools import lru_cache
from pathlib import Path

from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule.search_strategy import MeasureCandidate
from tvm.target import Target

from ...cost_model.features.program_features import ProgramFeatures
from ..definitions import definition_of
from ..space import MeasuredModule, Space
from ..table import ReplayTable
from ..training import read_space_once
from .simulation import Simulation


class SimulatedTable(ReplayTable):
    """Answers for one tuning run of one task, for every program.

    Parameters
    ----------
    space : Space
        A sample.
    simulation : Simulation
        Its times of programs that the sample does not have.
    """

    def __init__(self, space: Space, simulation: Simulation) -> None:
        super().__init__(space)
        self._simulation = simulation
        self._context = definition_of(space).context(Target(dict(space.target)), "replay-trace")
        self._features = ProgramFeatures()

    def answer(self, mod: IRModule) -> MeasuredModule:
        """The measurements of a module; a simulated one where there are none."""
        module = structural_hash(mod)
        if module in self.space.index:
            return self.space.modules[self.space.index[module]]
        candidate = MeasureCandidate(Schedule(mod), [])
        features = self._features.extract(self._context, [candidate])[0]
        secs = self._simulation.secs(module, features)
        return MeasuredModule(module, (secs,), build_secs=0.0, run_secs=0.0)


def simulate_once(path: Path, directory: Path) -> Path:
    """Fit the simulation of a sample, kept in a file.

    Parameters
    ----------
    path : Path
        File of the sample.
    directory : Path
        Directory of the features and the simulation.

    Returns
    -------
    file : Path
        The file of the simulation.
    """
    name = path.name.partition(".")[0]
    kept = directory / f"{name}.simulation.npz"
    if not kept.exists():
        programs = read_space_once(path, directory / f"{name}.npz")
        timed = programs.secs < float("inf")
        Simulation.fit(programs.features[timed], programs.secs[timed]).save(kept)
    return kept


@lru_cache(maxsize=8)
def load_simulation(path: Path) -> Simulation:
    """Read a simulation, once in a process."""
    return Simulation.load(path)

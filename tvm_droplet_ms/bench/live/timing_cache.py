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
"""The timings of all modules that were measured on a machine. Imports no TVM."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from .timed_passes import Outcome, StoredFailure, TimedPass, choose_pass
from .timing_file import Machine, open_file, transaction


@dataclass(frozen=True)
class Measurement:
    """The outcome of a candidate.

    Parameters
    ----------
    module : str
        The key of its module.
    trace : Any
        The JSON of its trace, from which the module can be made again.
    outcome : Outcome
        Its pass or its failure.
    """

    module: str
    trace: Any
    outcome: Outcome


class TimingCache:
    """The timings of modules, kept in a file.

    Parameters
    ----------
    path : Path | str
        The file.
    machine : Machine | None
        The machine that measures; a file that does not exist is made for it. None to read only.

    Raises
    ------
    CacheError
        If the file cannot be used; see ``open_file``.
    """

    def __init__(self, path: Path | str, machine: Machine | None = None) -> None:
        self._connection = open_file(Path(path), machine)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> "TimingCache":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def draw(self, seed: int, modules: Iterable[str]) -> dict[str, Outcome]:
        """What a run gets for the modules that are known.

        The pass of a seed and a module is drawn once and kept: passes that come later do not change
        what the next variant with the same seed sees.

        Parameters
        ----------
        seed : int
            The seed of the run.
        modules : Iterable[str]
            The keys of its modules.

        Returns
        -------
        outcomes : dict[str, Outcome]
            For each known module the pass drawn, or its failure if it has none.
        """
        with transaction(self._connection):
            found = {module: self._draw(seed, module) for module in modules}
        return {module: outcome for module, outcome in found.items() if outcome is not None}

    def add(
        self,
        workload: str,
        layer: str,
        measurements: Iterable[Measurement],
        seed: int | None = None,
    ) -> None:
        """Add outcomes, all or none of them.

        Parameters
        ----------
        workload, layer : str
            The key of the layer's module without a schedule, and the layer's name.
        measurements : Iterable[Measurement]
            The outcomes.
        seed : int | None
            The seed of the run that saw them, which sees them again; None if none did.
        """
        with transaction(self._connection) as execute:
            for measurement in measurements:
                module, outcome = measurement.module, measurement.outcome
                execute(
                    "INSERT OR IGNORE INTO module (key, workload, layer, trace) "
                    "VALUES (?, ?, ?, ?)",
                    (module, workload, layer, json.dumps(measurement.trace)),
                )
                if isinstance(outcome, StoredFailure):
                    execute(
                        "UPDATE module SET failure_kind = ?, failure = ? WHERE key = ?",
                        (outcome.kind, outcome.message, module),
                    )
                    continue
                row = (json.dumps(outcome.run_secs), outcome.process, outcome.taken, outcome.source)
                number = execute(
                    "INSERT INTO pass (module, run_secs, process, taken, source) "
                    "VALUES (?, ?, ?, ?, ?)",
                    (module, *row),
                ).lastrowid
                if seed is not None:
                    execute("INSERT OR IGNORE INTO draw VALUES (?, ?, ?)", (seed, module, number))

    def set_fault(self, module: str, fault: str) -> None:
        """Note why a module does not count, such as a wrong output; its timings are kept."""
        with transaction(self._connection) as execute:
            execute("UPDATE module SET fault = ? WHERE key = ?", (fault, module))

    def faults(self, workload: str) -> dict[str, str]:
        """Why modules of a workload do not count."""
        rows = self._connection.execute(
            "SELECT key, fault FROM module WHERE workload = ? AND fault IS NOT NULL", (workload,)
        )
        return dict(rows)

    def passes(self, workload: str) -> dict[str, list[TimedPass]]:
        """The passes of each module of a workload that has passes and no fault."""
        rows = self._connection.execute(
            "SELECT module, run_secs, process, taken, source FROM pass "
            "JOIN module ON module.key = pass.module "
            "WHERE workload = ? AND fault IS NULL ORDER BY pass.id",
            (workload,),
        )
        found: dict[str, list[TimedPass]] = {}
        for module, *fields in rows:
            found.setdefault(module, []).append(_timed_pass(*fields))
        return found

    def traces(self, modules: Iterable[str]) -> dict[str, Any]:
        """The JSON of the trace of each module that is known."""
        found = {}
        for module in modules:
            query = "SELECT trace FROM module WHERE key = ?"
            row = self._connection.execute(query, (module,)).fetchone()
            if row is not None:
                found[module] = json.loads(row[0])
        return found

    def _draw(self, seed: int, module: str) -> Outcome | None:
        execute = self._connection.execute
        row = execute(
            "SELECT pass FROM draw WHERE seed = ? AND module = ?", (seed, module)
        ).fetchone()
        if row is None:
            query = "SELECT id FROM pass WHERE module = ? ORDER BY id"
            numbers = execute(query, (module,)).fetchall()
            if not numbers:
                return self._failure(module)
            row = numbers[choose_pass(seed, module, len(numbers))]
            execute("INSERT INTO draw VALUES (?, ?, ?)", (seed, module, row[0]))
        query = "SELECT run_secs, process, taken, source FROM pass WHERE id = ?"
        return _timed_pass(*execute(query, row).fetchone())

    def _failure(self, module: str) -> StoredFailure | None:
        query = "SELECT failure_kind, failure FROM module WHERE key = ?"
        row = self._connection.execute(query, (module,)).fetchone()
        return None if row is None or row[0] is None else StoredFailure(*row)


def _timed_pass(run_secs: str, process: str, taken: float, source: str) -> TimedPass:
    return TimedPass(tuple(json.loads(run_secs)), process, taken, source)

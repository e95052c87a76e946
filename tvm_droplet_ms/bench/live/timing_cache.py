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
"""A file of all timings of modules on one machine. Imports no TVM.

An SQLite database with a write-ahead log: several processes may share it, and a process that is
killed loses only what it had not committed.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from .timed_passes import Outcome, StoredFailure, TimedPass, choose_pass

SCHEMA_VERSION = 1

_PATIENCE_SECS = 60.0
"""Seconds to wait for another process's transaction."""

_TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE module (
    key TEXT PRIMARY KEY,
    workload TEXT NOT NULL,
    layer TEXT NOT NULL,
    trace TEXT NOT NULL,
    failure_kind TEXT,
    failure TEXT,
    fault TEXT
);
CREATE INDEX module_of_workload ON module (workload);
CREATE TABLE pass (
    id INTEGER PRIMARY KEY,
    module TEXT NOT NULL REFERENCES module (key),
    run_secs TEXT NOT NULL,
    process TEXT NOT NULL,
    taken REAL NOT NULL,
    source TEXT NOT NULL
);
CREATE INDEX pass_of_module ON pass (module);
CREATE TABLE draw (
    seed INTEGER,
    module TEXT,
    pass INTEGER NOT NULL REFERENCES pass (id),
    PRIMARY KEY (seed, module)
) WITHOUT ROWID;
"""


class CacheError(Exception):
    """A cache cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Machine:
    """What a timing depends on beside the module.

    Parameters
    ----------
    target : str
        The target in TVM's form.
    cpu : str
        LLVM's name of the CPU.
    threads : int
        The threads of a parallel kernel.
    """

    target: str
    cpu: str
    threads: int


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
        The machine that measures; a file that does not exist is made for it. None only reads.

    Raises
    ------
    CacheError
        If the file is another machine's, of another version, no cache at all, or missing although
        ``machine`` is None.
    """

    def __init__(self, path: Path | str, machine: Machine | None = None) -> None:
        self.path = Path(path)
        if machine is None and not self.path.exists():
            raise CacheError(f"{path} does not exist: name a file that earlier runs made")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(path, timeout=_PATIENCE_SECS, isolation_level=None)
        try:
            self._open(machine)
        except sqlite3.DatabaseError as error:
            self.close()
            raise CacheError(f"{path} is no cache of timings: {error}; name another file") from None
        except BaseException:
            self.close()
            raise

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
        with self._transaction():
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
        with self._transaction() as execute:
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
        with self._transaction() as execute:
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

    def _open(self, machine: Machine | None) -> None:
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        with self._transaction() as execute:
            query = "SELECT 1 FROM sqlite_master WHERE name = 'about'"
            if execute(query).fetchone() is None:
                self._make_tables(machine)
            about = dict(execute("SELECT name, value FROM about"))
        self._check(about, machine)

    def _make_tables(self, machine: Machine | None) -> None:
        if machine is None or self._connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise CacheError(f"{self.path} is no cache of timings: name another file")
        for statement in _TABLES.split(";\n"):
            self._connection.execute(statement)
        about = _about(machine)
        self._connection.executemany("INSERT INTO about VALUES (?, ?)", about.items())

    def _check(self, about: Mapping[str, str], machine: Machine | None) -> None:
        if about["schema"] != str(SCHEMA_VERSION):
            raise CacheError(
                f"{self.path} has version {about['schema']} of the tables, expected "
                f"{SCHEMA_VERSION}: use the code that made it, or name another file"
            )
        expected = about if machine is None else _about(machine)
        for name, value in expected.items():
            if about[name] != value:
                raise CacheError(
                    f"{self.path} has timings of {name} {about[name]}, expected {value}, that of "
                    "this machine: name another file"
                )

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection.execute
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


def _about(machine: Machine) -> dict[str, str]:
    fields = {name: str(value) for name, value in asdict(machine).items()}
    return {"schema": str(SCHEMA_VERSION), **fields}


def _timed_pass(run_secs: str, process: str, taken: float, source: str) -> TimedPass:
    return TimedPass(tuple(json.loads(run_secs)), process, taken, source)

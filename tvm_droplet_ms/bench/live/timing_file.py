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
"""The SQLite file of a cache of timings: its tables, and the machine that it is for.

Imports no TVM. The file has a write-ahead log: several processes may share it, and a process that
is killed loses only what it had not committed.
"""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

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


def open_file(path: Path, machine: Machine | None) -> sqlite3.Connection:
    """Open a cache of timings, and make it if there is none.

    Parameters
    ----------
    path : Path
        The file.
    machine : Machine | None
        The machine that measures; None to read only, whatever machine has measured.

    Returns
    -------
    connection : sqlite3.Connection
        Without implicit transactions; see ``transaction``.

    Raises
    ------
    CacheError
        If the file is another machine's, of another version, no cache at all, or missing although
        ``machine`` is None.
    """
    if machine is None and not path.exists():
        raise CacheError(f"{path} does not exist: name a file that earlier runs made")
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=_PATIENCE_SECS, isolation_level=None)
    try:
        _prepare(connection, path, machine)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise CacheError(f"{path} cannot be used as a cache of timings: {error}") from error
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[Any]:
    """Commit all that is executed within, or nothing; gives ``connection.execute``."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection.execute
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _prepare(connection: sqlite3.Connection, path: Path, machine: Machine | None) -> None:
    names = _table_names(connection)
    if "about" not in names and (names or machine is None):
        raise CacheError(f"{path} is no cache of timings: name another file")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    with transaction(connection) as execute:
        # Another process may have made them since.
        if machine is not None and "about" not in _table_names(connection):
            for statement in _TABLES.split(";\n"):
                execute(statement)
            for row in _about(machine).items():
                execute("INSERT INTO about VALUES (?, ?)", row)
        about = dict(execute("SELECT name, value FROM about"))
    _check(path, about, machine)


def _table_names(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}


def _check(path: Path, about: Mapping[str, str], machine: Machine | None) -> None:
    if about.get("schema") != str(SCHEMA_VERSION):
        raise CacheError(
            f"{path} has version {about.get('schema')} of the tables, expected {SCHEMA_VERSION}: "
            "use the code that made it, or name another file"
        )
    for name, value in ({} if machine is None else _about(machine)).items():
        if about.get(name) != value:
            raise CacheError(
                f"{path} has timings of {name} {about.get(name)}, expected {value}, that of this "
                "machine: name another file"
            )


def _about(machine: Machine) -> dict[str, str]:
    fields = {name: str(value) for name, value in asdict(machine).items()}
    return {"schema": str(SCHEMA_VERSION), **fields}

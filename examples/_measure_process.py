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
"""Measurements in child processes, one after the other, each kept in a file. Imports no TVM.

A script gives its measurements to ``run_or_read``, which starts it again with one of them; there
``child_task`` and ``finish`` take it and write what was measured.
"""

import json
import os
import signal
import subprocess
import sys
import time
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compare_live import read_result, write_result

_CHILD = "--child"

_BUSY_LOOP = """
import os
while os.getppid() == {parent}:
    for _ in range(10**6):
        pass
"""


def make_parser(doc: str, out: str) -> ArgumentParser:
    """A parser with the options that all of these scripts have; ``doc`` is the script's own."""
    # A stopped parent must not leave a child behind: run_or_read kills it on an exception.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    parser = ArgumentParser(
        description=doc.split("\n\n")[0], formatter_class=ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path(out), help="where results are kept")
    parser.add_argument("--table-only", action="store_true", help="measure nothing, print tables")
    parser.add_argument("--markdown", action="store_true", help="print the tables as Markdown")
    return parser


def run_or_read(
    script: str, path: Path, settings: dict[str, Any], table_only: bool
) -> dict[str, Any] | None:
    """Measure in a process of its own, unless the result is there already.

    Parameters
    ----------
    script : str
        The program to start.
    path : Path
        Where the result is, or goes.
    settings : dict
        What to measure, of JSON's types. A result of other settings ends the program.
    table_only : bool
        Whether to measure nothing.

    Returns
    -------
    result : dict | None
        What the child wrote, with ``settings`` and ``process_secs``, the seconds from the start to
        the end of its process; None if there is no result.
    """
    done = read_result(path, settings)
    if done or table_only:
        return done
    path.parent.mkdir(parents=True, exist_ok=True)
    written, log = path.with_suffix(".written"), path.with_suffix(".log")
    print(f"{time.strftime('%H:%M:%S')} {path.stem} ...", end=" ", flush=True)
    started = time.time()
    task = {"settings": settings, "out": str(path.parent), "started": started}
    command = [sys.executable, script, _CHILD, str(written), json.dumps(task)]
    with log.open("w") as output:
        status = _run_group(command, stdout=output, stderr=subprocess.STDOUT)
    secs = time.time() - started
    if status != 0:
        last = (log.read_text().strip().splitlines() or ["it printed nothing"])[-1]
        print(f"FAILED with exit status {status}, see {log}: {last}", flush=True)
        return None
    result = {"settings": settings, **json.loads(written.read_text()), "process_secs": secs}
    write_result(path, result)
    written.unlink()
    print(f"{secs:.0f} s", flush=True)
    return result


def _run_group(command: list[str], **options: Any) -> int:
    """Run a program; if this one is stopped meanwhile, kill it with all processes of its group.

    Workers of TVM's pools that are left alone hold each other's pipes open, and stay for ever.
    """
    process = subprocess.Popen(command, start_new_session=True, **options)
    try:
        return process.wait()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise


def child_task() -> dict[str, Any] | None:
    """In a child, its ``settings``, ``out`` and ``started`` (``time.time()``); None elsewhere."""
    if len(sys.argv) != 4 or sys.argv[1] != _CHILD:
        return None
    task: dict[str, Any] = json.loads(sys.argv[3])
    return task


def finish(result: dict[str, Any]) -> None:
    """Write what a child measured."""
    Path(sys.argv[2]).write_text(json.dumps(result))


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Load the cores with some processes that only count, until the context ends."""
    command = [sys.executable, "-c", _BUSY_LOOP.format(parent=os.getpid())]
    processes = []
    try:
        for _ in range(count):
            processes.append(subprocess.Popen(command))
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()

# SPDX-License-Identifier: Apache-2.0
"""Cases in processes of their own: a crash of one costs one case."""

import multiprocessing
import os
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from .cases import Case, load_cases
from .running import CRASHED, Outcome, run_case

SECS = 60.0
"""The most that a case may take."""


def start_server() -> Any:
    """Start a server that loads the cases, TVM and ONNX Runtime: its forks begin at once.

    The server goes on loading after the return.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, f"{__package__}.preload"])
    # The server gets no search path but this, and passes over modules that it does not find.
    root = Path(__file__).parents[len(__package__.split("."))]
    paths = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *([paths] if paths else [])])
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        if paths is not None:
            os.environ["PYTHONPATH"] = paths
    return context


def run_cases(
    names: Sequence[str], workers: int = 2, tell: Callable[[Outcome], None] = lambda _: None
) -> list[Outcome]:
    """Run cases in worker processes, at a low priority.

    ``workers``: processes at a time. ``tell``: is told each outcome as it comes, from several
    threads. In the order of the names.
    """
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        left.put(name)
    outcomes: dict[str, Outcome] = {}
    context = start_server()

    def drive() -> None:
        worker = None
        while True:
            try:
                name = left.get_nowait()
            except queue.Empty:
                break
            worker = worker or _Worker(context)
            outcome = worker.run(name)
            if outcome is None:
                case = load_cases()[name]
                said = worker.end()
                worker = None
                outcome = _crashed(case, said)
            outcomes[name] = outcome
            tell(outcome)
        if worker is not None:
            worker.end()

    threads = [threading.Thread(target=drive) for _ in range(min(workers, len(names)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [outcomes[name] for name in names]


def _crashed(case: Case, said: str) -> Outcome:
    """A case whose process is gone: it counts, as if ONNX Runtime passed it."""
    return Outcome(case.name, case.operator, case.group, CRASHED, said, False, True, SECS)


class _Worker:
    """A process that runs one case after the other."""

    def __init__(self, context: Any) -> None:
        self._here, there = context.Pipe()
        self._process = context.Process(target=_work, args=(there,), daemon=True)
        self._process.start()
        there.close()

    def run(self, name: str) -> Outcome | None:
        """Run a case. None if the process is gone, or late."""
        try:
            self._here.send(name)
            found: Outcome | None = self._here.recv() if self._here.poll(SECS) else None
        except (EOFError, OSError):
            return None
        return found

    def end(self) -> str:
        """End the process. Say how it had ended."""
        self._process.join(0.5)
        code = self._process.exitcode
        if code is None:
            self._here.close()
            self._process.kill()
            self._process.join()
            return f"no result after {SECS:g} s"
        return f"the process ended with status {code}"


def _work(connection: Connection) -> None:
    os.nice(10)
    # What TVM prints is no result.
    sys.stdout = open(os.devnull, "w")
    os.dup2(sys.stdout.fileno(), 1)
    os.dup2(sys.stdout.fileno(), 2)
    while True:
        try:
            name = connection.recv()
        except EOFError:
            return
        connection.send(run_case(name))

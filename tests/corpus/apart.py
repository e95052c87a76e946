# SPDX-License-Identifier: Apache-2.0
"""Work in processes of their own: one that crashes or hangs costs one item."""

import contextlib
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

ROOT = Path(__file__).parents[len(__package__.split("."))]


class Fault(NamedTuple):
    """The end of a process without a result: ``kind`` is "crash" or "timeout"."""

    kind: str
    why: str


def start_server(preload: Sequence[str]) -> Any:
    """Start the server that processes are forked from; it goes on importing after the return."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *preload])
    # The server gets no search path but this, and passes over modules that it does not find.
    paths = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *([paths] if paths else [])])
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        if paths is not None:
            os.environ["PYTHONPATH"] = paths
    return context


def run_each(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    secs: float,
    *,
    workers: int = 1,
    preload: Sequence[str] = (),
    fresh: bool = False,
) -> Iterator[tuple[Item, Result | Fault]]:
    """Yield items with what ``work`` makes of each, as they come.

    ``work``: a function of a module; one that raises ends its process. ``secs``: the most that an
    item may take. ``workers``: processes at a time. ``preload``: modules that the server imports.
    ``fresh``: whether each item gets a new process, for work that may spoil the memory of its own.
    """
    context, waiting = start_server(preload), iter(items)
    idle: list[_Worker[Item]] = []
    busy: dict[Connection, _Worker[Item]] = {}
    try:
        while True:
            while len(busy) < workers and (more := list(islice(waiting, 1))):
                worker = idle.pop() if idle else _Worker(context, work)
                worker.begin(more[0], secs)
                busy[worker.connection] = worker
            if not busy:
                return
            first = min(worker.deadline for worker in busy.values())
            ready = wait(list(busy), max(0.0, first - time.monotonic()))
            for connection, worker in list(busy.items()):
                if connection in ready:
                    found = worker.received()
                    if fresh or isinstance(found, Fault):
                        worker.end()
                    else:
                        idle.append(worker)
                elif time.monotonic() < worker.deadline:
                    continue
                else:
                    worker.end()
                    found = Fault("timeout", f"no result after {secs:g} s")
                del busy[connection]
                yield worker.item, found
    finally:
        for worker in [*idle, *busy.values()]:
            worker.end()


class _Worker(Generic[Item]):
    """A process that does one item after the other."""

    item: Item
    deadline: float

    def __init__(self, context: Any, work: Callable[[Item], Any]) -> None:
        self.connection, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(work, there), daemon=True)
        self._process.start()
        there.close()

    def begin(self, item: Item, secs: float) -> None:
        self.item, self.deadline = item, time.monotonic() + secs
        with contextlib.suppress(OSError):  # It ended while idle: ``received`` says so.
            self.connection.send(item)

    def received(self) -> Any:
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            return Fault("crash", f"the process ended with status {self._process.exitcode}")

    def end(self) -> None:
        self.connection.close()
        self._process.kill()
        self._process.join()


def _serve(work: Callable[[Any], Any], connection: Connection) -> None:
    # What TVM prints is no result.
    sys.stdout = open(os.devnull, "w")
    os.dup2(sys.stdout.fileno(), 1)
    while True:
        try:
            item = connection.recv()
        except EOFError:
            return
        try:
            connection.send(work(item))
        except BaseException:
            traceback.print_exc()
            os._exit(1)

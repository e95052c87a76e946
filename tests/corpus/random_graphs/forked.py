# SPDX-License-Identifier: Apache-2.0
"""Runs graphs in forked processes: a crash of LLVM costs one graph."""

from __future__ import annotations

import json
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

Job = tuple[Any, Callable[[], dict[str, Any]]]
"""A key, and what to run in a process of its own."""


@dataclass
class _Child:
    key: Any
    pid: int
    pipe: int
    deadline: float
    data: bytes = b""


def run_forked(
    jobs: Iterable[Job], processes: int, timeout_s: float, niceness: int = 10
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Run jobs in forked processes, some at a time.

    This process must not have run a kernel: threads do not survive a fork.

    - ``jobs``: the jobs; taken as processes become free.
    - ``processes``: how many at a time.
    - ``timeout_s``: seconds after which one is ended.
    - ``niceness``: added to that of the processes.

    Yields what a job returned. Of one that was ended, or ended otherwise, ``{"status": "timeout"}``
    or ``{"status": "crash", "why": ...}``.
    """
    waiting = iter(jobs)
    children: list[_Child] = []
    try:
        more = True
        while more or children:
            while more and len(children) < processes:
                job = next(waiting, None)
                if job is None:
                    more = False
                else:
                    children.append(_fork(job, timeout_s, niceness))
            if not children:
                continue
            now = time.monotonic()
            first = min(child.deadline for child in children)
            ready, _, _ = select.select([c.pipe for c in children], [], [], max(0.0, first - now))
            for child in list(children):
                if child.pipe in ready:
                    part = os.read(child.pipe, 1 << 16)
                    child.data += part
                    if part:
                        continue
                elif time.monotonic() < child.deadline:
                    continue
                else:
                    os.kill(child.pid, signal.SIGKILL)
                children.remove(child)
                yield child.key, _ended(child)
    finally:
        for child in children:
            os.kill(child.pid, signal.SIGKILL)
            _ended(child)


def _fork(job: Job, timeout_s: float, niceness: int) -> _Child:
    key, run = job
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            os.nice(niceness)
            data = json.dumps(run()).encode()
            while data:
                data = data[os.write(writing, data) :]
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            # Exit handlers are those of the parent.
            os._exit(code)
    os.close(writing)
    return _Child(key, pid, reading, time.monotonic() + timeout_s)


def _ended(child: _Child) -> dict[str, Any]:
    os.close(child.pipe)
    _, status = os.waitpid(child.pid, 0)
    if child.data and os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
        row: dict[str, Any] = json.loads(child.data)
        return row
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGKILL and time.monotonic() >= child.deadline:
            return {"status": "timeout", "why": "it was ended for its time"}
        return {"status": "crash", "why": f"signal {signal.Signals(number).name}"}
    return {"status": "crash", "why": f"exit status {os.WEXITSTATUS(status)}"}

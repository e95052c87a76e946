# SPDX-License-Identifier: Apache-2.0
"""Worker servers that are forked from a program with TVM imported, not started.

Importing TVM takes longer than what most tests do with a worker. The programs that tests start have
servers that are started.
"""

import array
import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from contextlib import suppress
from typing import NoReturn

_SUBREAPER = 36
"""Of prctl(2): orphans below this process become its children."""


class WarmServers:
    """Starts worker servers in place of ``subprocess``: each is a child of this process."""

    DEVNULL = subprocess.DEVNULL

    def __init__(self) -> None:
        self.sessions: list[int] = []
        """The sessions of the servers that were started, each with its workers."""
        self._ours, theirs = socket.socketpair()
        command = [sys.executable, __file__, str(theirs.fileno()), json.dumps(sys.path)]
        self._program = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], start_new_session=True
        )
        theirs.close()

    def Popen(self, command, *, pass_fds, stdin, stderr, env, start_new_session):
        """As the one of ``subprocess``, for a program that is the text of ``-c``."""
        asked = {"code": command[2], "fds": list(pass_fds), "env": env, "cwd": os.getcwd()}
        text = json.dumps({**asked, "parent": os.getpid()}).encode()
        fds = array.array("i", [stderr, *pass_fds])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]
        libc = ctypes.CDLL(None)
        libc.prctl(_SUBREAPER, 1)
        try:
            self._ours.sendmsg([len(text).to_bytes(8, "big")], rights)
            self._ours.sendall(text)
            self.sessions.append(int.from_bytes(_received(self._ours, 8), "big"))
            return _Forked(self.sessions[-1])
        finally:
            libc.prctl(_SUBREAPER, 0)

    def close(self) -> None:
        self._ours.close()
        self._program.kill()
        self._program.wait()


class _Forked:
    """What ``Program`` needs of a process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def kill(self) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> None:
        if self.returncode is None:
            try:
                self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            except ChildProcessError:  # The system reaped it.
                self.returncode = 0


def _received(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (part := connection.recv(count - len(found))):
        found += part
    return found


def _serve(connection: socket.socket) -> None:
    """Fork a server for each request, until the tests end."""
    while True:
        head, fds, *_ = socket.recv_fds(connection, 8, 8)
        if not head:
            return
        asked = json.loads(_received(connection, int.from_bytes(head, "big")))
        child = os.fork()
        if child == 0:
            # An orphan of the tests' process, once the process between them has ended.
            if os.fork():
                os._exit(0)
            _become_server(connection, fds, asked)
        os.waitpid(child, 0)
        for descriptor in fds:
            os.close(descriptor)


def _become_server(connection: socket.socket, fds: list[int], asked: dict) -> NoReturn:
    status = 1
    try:
        while os.getppid() != asked["parent"]:
            time.sleep(0.001)
        connection.sendall(os.getpid().to_bytes(8, "big"))
        os.setsid()
        os.chdir(asked["cwd"])
        os.environ.clear()
        os.environ.update(asked["env"])
        moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 1000) for descriptor in fds]
        os.closerange(3, 1000)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, place in zip(moved, [2, *asked["fds"]], strict=True):
            os.dup2(descriptor, place)
            os.close(descriptor)
        exec(asked["code"], {"__name__": "__main__"})
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.path[:] = json.loads(sys.argv[2])
    import tvm_droplet_ms.measure.build
    import tvm_droplet_ms.measure.pool.server
    import tvm_droplet_ms.measure.timing  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _serve(socket.socket(fileno=int(sys.argv[1])))

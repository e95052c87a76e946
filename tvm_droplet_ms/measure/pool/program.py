# SPDX-License-Identifier: Apache-2.0
"""The worker server as a child of the user's process: how it is started and ended."""

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.connection import Connection

import psutil

from .pytorch import KEEP_OUT

_POLL_SECS = 0.005
"""Seconds between two checks whether the program has ended."""

_STDERR_BYTES = 2000
"""Maximum bytes from the end of the program's standard error in an error message."""


class Program:
    """The program that holds the workers.

    Its standard error is kept in memory, for the message that says why it ended. ``connection``:
    the program's end of the connection. ``directory``: the directory of its temporary files.
    ``worker_stderr``: a file descriptor for its workers to inherit. Raises ``OSError`` if it cannot
    be started.
    """

    def __init__(self, connection: Connection, directory: str, worker_stderr: int | None) -> None:
        # `-c` leaves the program without a main module for Python to import anywhere again.
        code = (
            f"import sys; sys.path[:] = {[str(entry) for entry in sys.path]!r}; "
            f"{KEEP_OUT}from {__package__}.server import main; "
            f"main({connection.fileno()}, {os.getpid()}, {directory!r})"
        )
        # A file in memory, because a full disk may be the reason of the end.
        self._stderr = os.fdopen(os.memfd_create("stderr"), "rb", buffering=0)
        inherited = [connection.fileno(), *([] if worker_stderr is None else [worker_stderr])]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                stderr=self._stderr,
                env={
                    **os.environ,
                    # Files that are left there when the program is killed go with the directory.
                    "TMPDIR": directory,
                    # tvm_ffi would ask PyTorch, where it is installed, for a CUDA device, and what
                    # is forked from a process that has one cannot use it.
                    "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
                },
                # Out of the terminal's group, which Ctrl-C interrupts as a whole.
                start_new_session=True,
            )
        except BaseException:
            self._stderr.close()
            raise
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The process id, which is also the session of the program and of its workers."""
        return self._process.pid

    def has_ended(self) -> bool:
        """True if the program has ended."""
        if self._process.returncode is not None:
            return True
        try:
            return self._is_zombie()
        except ChildProcessError:
            return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the program to end, and end the processes that its workers left.

        ``timeout``: the longest time to wait, in seconds; None for any time. False if it still
        runs.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while not self.has_ended():
            if end is not None and time.monotonic() > end:
                return False
            time.sleep(_POLL_SECS)
        with self._lock:
            try:
                # Until it is reaped, no other session can have its number.
                if self._process.returncode is None and self._is_zombie():
                    _end_session(self.pid)
            except ChildProcessError:
                pass  # The system reaped it, as it does where SIGCHLD is ignored.
            finally:
                self._process.wait()
        return True

    def _is_zombie(self) -> bool:
        """True if it ended and is not reaped; raises ChildProcessError if it is."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, options) is not None

    def kill(self) -> None:
        """End the program by force."""
        with self._lock:
            self._process.kill()

    def describe_end(self) -> str:
        """The reason for the program's end: its exit status and its last output."""
        size = os.fstat(self._stderr.fileno()).st_size
        words = os.pread(self._stderr.fileno(), _STDERR_BYTES, max(0, size - _STDERR_BYTES))
        last = words.decode(errors="replace").strip()
        status = self._process.returncode
        message = f"the program that holds the worker processes ended, with status {status}"
        return f"{message}: {last}" if last else message


def _end_session(session: int) -> None:
    """End all process groups of a session: workers, and the processes that they started."""
    groups = set()
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == session:
                groups.add(os.getpgid(pid))
        except ProcessLookupError:
            pass  # It has ended meanwhile.
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass

# SPDX-License-Identifier: Apache-2.0
"""Starts and ends the worker server, a child process of the user's process."""

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from multiprocessing.connection import Connection

import psutil

SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""The signals that the program ignores, and that are blocked until it does."""

_POLL_SECS = 0.005
"""Seconds between two checks whether the program has ended."""

_STDERR_BYTES = 2000
"""Maximum bytes from the end of the program's standard error in an error message."""

_NAME = "_NoPyTorch"

_KEEP_PYTORCH_OUT = (
    f"sys.meta_path.insert(0, type('{_NAME}', (), {{'find_spec': staticmethod(lambda name, *_: "
    "(_ for _ in ()).throw(ModuleNotFoundError('PyTorch is kept out', name=name)) "
    "if name == 'torch' else None)})()); "
)
"""A statement that makes ``import torch`` fail as if PyTorch were not installed.

tvm_ffi and TVM import PyTorch if they find it, which takes 3 s, 200 MB of memory and 600 MB of
address space. The workers are forked from the server, and this package's tasks do not need PyTorch.
A None in ``sys.modules`` would suffice for tvm_ffi and TVM, but SciPy mistakes it for PyTorch.
"""


class Program:
    """The program that holds the workers.

    Its standard error is kept in memory, to explain why the program ended. ``connection``: the
    program's end of the connection. ``directory``: the directory of its temporary files.
    ``worker_stderr``: a file descriptor for its workers to inherit. Raises ``OSError`` if the
    program cannot be started.
    """

    def __init__(self, connection: Connection, directory: str, worker_stderr: int | None) -> None:
        # With `-c` the program has no main module that Python could import again.
        code = (
            f"import sys; sys.path[:] = {[str(entry) for entry in sys.path]!r}; "
            f"{_KEEP_PYTORCH_OUT}from {__package__}.server import main; "
            f"main({connection.fileno()}, {os.getpid()}, {directory!r})"
        )
        # A file in memory, because a full disk may be the reason that the program ends.
        self._stderr = os.memfd_create("stderr")
        weakref.finalize(self, os.close, self._stderr).atexit = False
        inherited = [connection.fileno(), *([] if worker_stderr is None else [worker_stderr])]
        # The program inherits the mask: an early interrupt would end it with a traceback.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=inherited,
                stdin=subprocess.DEVNULL,
                stderr=self._stderr,
                env={
                    **os.environ,
                    # Files that a killed program leaves are deleted with the directory.
                    "TMPDIR": directory,
                    # tvm_ffi would ask PyTorch, if installed, for a CUDA device. Processes forked
                    # from a process that has opened the device cannot use it.
                    "TVM_FFI_DISABLE_TORCH_C_DLPACK": "1",
                },
                # Leave the terminal's process group, which Ctrl-C interrupts as a whole.
                start_new_session=True,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """The process id, which is also the session id of the program and its workers."""
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

        ``timeout``: maximum seconds to wait; None for no limit. Returns False if the program still
        runs.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while not self.has_ended():
            if end is not None and time.monotonic() > end:
                return False
            time.sleep(_POLL_SECS)
        with self._lock:
            try:
                # Until the program is reaped, no other session can have its id.
                if self._process.returncode is None and self._is_zombie():
                    _end_session(self.pid)
            except ChildProcessError:
                pass  # The system reaped it, as it does if SIGCHLD is ignored.
            finally:
                self._process.wait()
        return True

    def _is_zombie(self) -> bool:
        """True if the program ended and is not reaped; ChildProcessError if it is reaped."""
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.pid, options) is not None

    def kill(self) -> None:
        """Kill the program."""
        with self._lock:
            self._process.kill()

    def describe_end(self) -> str:
        """Explain why the program ended, by its exit status and its last output."""
        size = os.fstat(self._stderr).st_size
        words = os.pread(self._stderr, _STDERR_BYTES, max(0, size - _STDERR_BYTES))
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
            pass  # The process has ended meanwhile.
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass


def let_pytorch_in() -> None:
    """Let ``import torch`` find PyTorch again, for users' tasks that need it."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != _NAME]

# SPDX-License-Identifier: Apache-2.0
"""Faults for workers, and checks that they leave no processes or files behind."""

import ctypes
import errno
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import TimeoutError
from pathlib import Path
from typing import Any

import psutil

from tvm_droplet_ms.measure import TaskFailed

PATIENCE_SECS = 60.0
"""Timeout in seconds for operations that take a second on an idle machine."""

INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
"""
"""Start of a program that Ctrl-C must end. A job in the background ignores SIGINT, and so would the
programs that it starts."""

_MARK = "TVM_DROPLET_MS_TEST"


class Surroundings:
    """The processes and the temporary files of one test.

    Processes started from here on inherit a mark in their environment, or are in a session of
    ``servers``, and put their temporary files into a directory of their own.
    """

    def __init__(self, directory: Path, monkeypatch: Any, servers: Any) -> None:
        self.directory = directory
        self._servers, self._before = servers, len(servers.sessions)
        self.environment = {"TMPDIR": str(directory), _MARK: uuid.uuid4().hex}
        for name, value in self.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(tempfile, "tempdir", str(directory))

    def processes(self) -> list[psutil.Process]:
        """Those alive, without this one."""
        found, sessions = [], set(self._servers.sessions[self._before :])
        for process in psutil.process_iter():
            try:
                # Reading the environment of a zombie raises.
                is_marked = process.environ().get(_MARK) == self.environment[_MARK]
                if is_marked or os.getsid(process.pid) in sessions:
                    found.append(process)
            except (psutil.Error, ProcessLookupError):
                pass
        return found

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.directory)) for path in self.directory.rglob("*"))

    def assert_nothing_is_left(self) -> None:
        eventually(lambda: not self.processes())
        assert not self.processes(), self.processes()
        eventually(lambda: not self.files())
        assert not self.files(), self.files()

    def run(self, *command: str, stdin: str = "") -> str:
        """The standard output of a program that must succeed."""
        done = subprocess.run(
            command, input=stdin, env=self._environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, program: str) -> "subprocess.Popen[str]":
        """Start a Python program, which SIGINT interrupts, in a process group of its own."""
        return subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE + program],
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        return {**os.environ, **self.environment, "PYTHONPATH": path}


def eventually(condition: Callable[[], bool], secs: float = PATIENCE_SECS) -> bool:
    """True if a condition becomes true in time."""
    end = time.monotonic() + secs
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; fails where it does not become true in time."""
    assert eventually(condition), "waited in vain"


def our_processes() -> set[int]:
    """The processes below this one."""
    return {process.pid for process in psutil.Process().children(recursive=True)}


def outcome(future: Any, secs: float = PATIENCE_SECS) -> tuple[str, Any]:
    """A task's ("value", value), (kind of failure, message) or ("no reply", None)."""
    try:
        return "value", future.result(secs)
    except TimeoutError:
        return "no reply", None
    except TaskFailed as error:
        return error.kind, str(error)


def outcomes(futures: Iterable[Any], secs: float = PATIENCE_SECS) -> list[tuple[str, Any]]:
    """The words of `outcome` for each; they have this long together."""
    end = time.monotonic() + secs
    return [outcome(future, max(0.0, end - time.monotonic())) for future in futures]


def echo(value: Any) -> Any:
    return value


def generator() -> Any:
    return (i for i in range(3))


def closure() -> Any:
    return lambda: 1


class _Unreadable:
    def __reduce__(self) -> Any:
        return raise_error, ()


def unreadable() -> Any:
    return _Unreadable()


def raise_error() -> None:
    raise ValueError("the fault of this test")


def raise_no_space() -> None:
    """Like a build on a full disk, whose error TVM wraps."""
    try:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        raise RuntimeError("not exported") from error


def raise_interrupt() -> None:
    raise KeyboardInterrupt("the fault of this test")


def kill_the_server() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    hang()


def leave() -> None:
    sys.exit("the fault of this test")


def leave_as_if_well() -> None:
    os._exit(0)


def leave_at_once() -> None:
    os._exit(3)


def segfault() -> None:
    ctypes.string_at(0)


def die_of_signal_40() -> None:
    os.kill(os.getpid(), 40)


def die_while_answering() -> None:
    """As a worker that is killed when its result is half sent."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and Path("/proc/self/fd", name).is_socket():
            # The length of a message of multiprocessing, and a part of it.
            os.write(int(name), struct.pack("!i", 1000) + b"begun")
            os._exit(1)


def hang() -> None:
    while True:
        time.sleep(1)


def hang_in_c() -> None:
    """Wait in C for a signal, with the interpreter's lock held, so that no Python code runs."""
    ctypes.PyDLL(None).pause()


def hang_against_sigterm() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang()


def hang_stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def hang_with_children() -> None:
    """Like a build whose linker hangs, and the linker itself."""
    subprocess.run([sys.executable, "-c", "import subprocess; subprocess.run(['sleep', '1000'])"])


def crash_with_children() -> None:
    subprocess.Popen(["sleep", "1000"])
    segfault()


def eat_memory() -> None:
    """Allocate up to the limit, and let go of it."""
    eaten = []
    while True:
        eaten.append(bytearray(1 << 26))


_kept: list[Any] = []


def eat_memory_and_keep_it() -> None:
    """As a cache that grows: not one byte can be allocated afterwards."""
    size = 1 << 28
    while size >= 32:
        try:
            _kept.append(bytearray(size))
        except MemoryError:
            size //= 2
    _kept.append(bytearray(1 << 20))


def eat_memory_and_keep_most() -> None:
    """As a cache that grows: the process can go on, and has room for nothing of size."""
    try:
        eat_memory_and_keep_it()
    finally:
        _kept.pop(0)
        _kept.append(bytearray(192 << 20))


def need_memory(mebibytes: int) -> int:
    return len(bytearray(mebibytes << 20)) >> 20


def eat_memory_in_c() -> None:
    """Like C code that does not check the result of malloc."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    while (address := libc.malloc(1 << 28)) is not None:
        pass
    ctypes.memset(address, 0, 1)


def eat_file_descriptors_and_keep_them() -> None:
    while True:
        _kept.append(open(os.devnull))


def leak(mebibytes: int) -> int:
    """Never free some resident memory; returns the process."""
    _kept.append(b"x" * (mebibytes << 20))
    return os.getpid()


def build_and_leak(_mod: Any, _target: Any, _params: Any) -> None:
    leak(64)


def build_nothing(_mod: Any, _target: Any, _params: Any) -> None:
    """A build function for `export_pid`."""


def export_pid(_module: Any) -> str:
    """An export function whose artifact is named by the worker."""
    path = Path(tempfile.mkdtemp(), str(os.getpid()))
    path.touch()
    return str(path)

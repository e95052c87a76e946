# SPDX-License-Identifier: Apache-2.0
"""A tracker and servers of TVM's RPC on this machine, and kernels for them."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil

import tvm
from tvm import te
from tvm.rpc.server import Server
from tvm.rpc.tracker import Tracker
from tvm.s_tir.meta_schedule.arg_info import TensorInfo
from tvm.s_tir.meta_schedule.runner import RunnerInput

ARGUMENTS = [TensorInfo("float32", (16,))] * 2


class LocalFleet:
    """A tracker, and servers that can be killed."""

    def __init__(self) -> None:
        self._tracker = Tracker("127.0.0.1", port=20190, port_end=20990, silent=True)
        self.tracker = f"127.0.0.1:{self._tracker.port}"
        self.servers: dict[str, list[Server]] = {}

    def ensure(self, key: str, count: int) -> list[Server]:
        """Have so many servers of a key; starts those that are missing."""
        servers = self.servers.setdefault(key, [])
        servers[:] = [server for server in servers if server.proc.is_alive()]
        missing = count - len(servers)
        if missing > 0:
            with ThreadPoolExecutor(missing) as pool:
                servers += pool.map(self._start, [key] * missing)
        return servers

    def _start(self, key: str) -> Server:
        address = ("127.0.0.1", self._tracker.port)
        return Server("127.0.0.1", 21090, 21990, tracker_addr=address, key=key, silent=True)

    def close(self) -> None:
        for servers in self.servers.values():
            for server in servers:
                server.terminate()
        self._tracker.terminate()


@contextmanager
def local_fleet() -> Iterator[LocalFleet]:
    fleet = LocalFleet()
    try:
        yield fleet
    finally:
        fleet.close()


def kill(server: Server) -> None:
    """As the system does it: the program and its sessions at once."""
    program = psutil.Process(server.proc._proc.pid)
    for process in [*program.children(recursive=True), program]:
        process.kill()


def await_kernel(server: Server, secs: float = 30.0) -> None:
    """Wait until a session has loaded a kernel.

    A server that ends earlier may not have been reached yet, and is passed over.
    """
    program = psutil.Process(server.proc._proc.pid)
    end = time.monotonic() + secs
    while not any(map(_has_kernel, program.children(recursive=True))):
        assert time.monotonic() < end, "no kernel was loaded"
        time.sleep(0.005)


def _has_kernel(session: psutil.Process) -> bool:
    try:
        return any(os.path.basename(area.path) == "kernel.so" for area in session.memory_maps())
    except psutil.Error:  # The session ended.
        return False


def export(directory: Path, name: str, *call: str | int) -> str:
    """A kernel that adds 1 to 16 numbers, or what a C function says; in a folder of its own."""
    folder = directory / name
    folder.mkdir()
    a = te.placeholder((16,), name="a")

    def compute(i):
        one = tvm.tirx.call_extern("int32", *call).astype("float32") if call else 1.0
        return a[i] + one

    b = te.compute((16,), compute, name="b")
    function = te.create_prim_func([a, b]).with_attr("global_symbol", "main")
    path = os.fspath(folder / "kernel.so")
    tvm.tirx.build(function, target="llvm").export_library(path)
    return path


def inputs(path: str, count: int = 1) -> list[RunnerInput]:
    """A batch of one kernel."""
    return [RunnerInput(path, "cpu", ARGUMENTS) for _ in range(count)]

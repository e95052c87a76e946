# SPDX-License-Identifier: Apache-2.0
"""The servers that measure, check and time the kernels of a run."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tvm_ffi

from tvm.error import RPCError
from tvm.rpc import RPCSession
from tvm.s_tir.meta_schedule.runner import EvaluatorConfig
from tvm.target import Target

from ...host import CPU_FEATURES, host_target, offered_by
from ...measure import TaskFailed, WarmBuilder
from ...measure.build import export_shared_library
from ...measure.failures import Failure
from ...measure.fleet import FleetError, FleetRunner
from ...measure.fleet.session import ServerFault
from .check.library_runs import on_server
from .errors import KernelError

WAIT_SECS = 60.0
"""The seconds that a run waits for a server."""

_TELL_SECS = 10.0
"""Maximum seconds for a server to report its CPU."""

_TRIES = 2
"""Number of attempts if a server ends."""


class Fleet:
    """The servers of a tracker's key, for one run of ``tune_kernel``.

    Raises ``KernelError`` if the tracker does not answer, or there is no server.
    """

    def __init__(
        self, tracker: str, key: str, threads: int, allocate: Callable[..., Any] | None = None
    ) -> None:
        self.name = f"the servers {key!r} of the tracker {tracker}"
        self._threads = threads
        short = EvaluatorConfig(number=1, repeat=1, min_repeat_ms=20, enable_cpu_cache_flush=False)
        try:
            self.runner = FleetRunner(
                tracker,
                key,
                threads=threads,
                evaluator_config=short,
                wait_secs=WAIT_SECS,
                f_alloc_argument=allocate,
            )
        except FleetError as error:
            raise KernelError(str(error)) from error

    def target(self) -> Target:
        """The target of the servers' CPU, as one server reports it.

        Raises ``KernelError`` if the server does not report it, or this machine cannot link for it.
        """
        try:
            triple, cpu, features = self._call(_TELL_SECS, _tell_cpu)
        except TaskFailed as error:
            raise KernelError(
                f"{self.name} do not tell their CPU: {error}. Pass target, such as "
                '{"kind": "llvm", "mcpu": "znver4"}'
            ) from error
        ours = str(Target.from_device("cpu").attrs["mtriple"])
        if triple.partition("-")[0] != ours.partition("-")[0] or "linux" not in triple:
            raise KernelError(
                f"{self.name} are {triple}, and this machine, which links the kernels, is {ours}: "
                "expected the same architecture. ms.tune_tir with FleetRunner and WarmBuilder() "
                "has the servers link them"
            )
        return offered_by(features, host_target(cpu))

    def measure(self, target: Target) -> dict[str, Any]:
        """The builder and the runner for a target."""
        builder = WarmBuilder(f_export=export_shared_library, target=target, paired=True)
        return {"builder": builder, "runner": self.runner}

    def run(self, secs: float, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run or time libraries on a server; ``TaskFailed`` if they fail, or no server is left."""
        return self._call(secs, on_server, self._threads, function, *arguments)

    def close(self) -> None:
        """End the sessions."""
        self.runner.close()

    def _call(self, secs: float, function: Callable[..., Any], *arguments: Any) -> Any:
        outcome: Any = None
        for _ in range(_TRIES):
            try:
                outcome = self.runner.remote().call(secs, function, *arguments)
            except FleetError as error:
                raise TaskFailed("machinery", str(error)) from error
            if not isinstance(outcome, Failure):
                return outcome
            if not outcome.is_machinery:
                break
        raise TaskFailed(outcome.kind, outcome.message)


def fleet_of(
    tracker: str | None, key: str | None, threads: int, allocate: Callable[..., Any] | None = None
) -> Fleet | None:
    """The fleet that the arguments of ``tune_kernel`` ask for; None for this machine."""
    if tracker is None and key is None:
        return None
    if not tracker or not key:
        raise KernelError(
            f"tracker is {tracker!r} and key is {key!r}: expected both, or neither to measure on "
            "this machine"
        )
    return Fleet(tracker, key, threads, allocate)


def refuse_lost_fleet(fleet: Fleet | None, directory: Path, measured: int) -> None:
    """Raise ``KernelError`` if no server is left; it says what is kept and how to continue."""
    if fleet is not None and fleet.runner.fault:
        raise KernelError(
            f"{fleet.runner.fault}. The {measured} schedules that were measured are kept in "
            f"{os.fspath(directory)!r}: run again, or droplet-ms resume"
        )


def _tell_cpu(session: RPCSession) -> tuple[str, str, dict[str, bool]]:
    """Return the target triple, the name and the features of a server's CPU."""
    try:
        triple = session.get_function("target.llvm_get_system_triple")()
        cpu = session.get_function("target.llvm_get_system_cpu")()
        # A server's map cannot be read here, but its JSON text can.
        there = session.get_function(CPU_FEATURES)()
        text = str(session.get_function("ffi.ToJSONGraphString")(there, None))
        features = tvm_ffi.get_global_func("ffi.FromJSONGraphString")(text)
        return str(triple), str(cpu), {str(name): bool(has) for name, has in features.items()}
    except RPCError as error:  # The server has only TVM's runtime.
        raise ServerFault(f"{error}") from error

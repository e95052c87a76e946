# SPDX-License-Identifier: Apache-2.0
"""The command ``droplet-ms bench``. Imports no TVM: the library needs its runtime alone."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..measure.turns import quartiles, time_in_alternation
from ..session.errors import first_line
from .arguments import command, fail, positive
from .run import add_inputs, read_inputs

if TYPE_CHECKING:
    import numpy as np

    from ..runtime import InferenceSession

OURS = "tuned"
"""The name of the library in the table."""

_THROUGHPUT_SECS = 2.0
"""Seconds for which each number of processes runs."""


def add_command(commands: Any) -> None:
    """Add the command to the parser's subcommands; it sets ``run`` to the function to call."""
    bench = command(commands, "bench", _run, "time a tuned model, beside other programs")
    bench.add_argument("model", metavar="MODEL.so", help="the library of a tuned model")
    bench.add_argument(
        "--against",
        nargs="+",
        default=[],
        metavar=("MODEL.onnx", "PROGRAM"),
        help=f"the ONNX file, and programs that run it: {', '.join(PROGRAMS)} (default: all that "
        "are installed)",
    )
    add_inputs(bench)
    bench.add_argument("--rounds", type=positive, default=31, help="runs of each (default: 31)")
    bench.add_argument(
        "--processes",
        type=positive,
        metavar="N",
        help="also the throughput of 1, 2, 4, ... up to N processes",
    )
    bench.add_argument("--json", action="store_true", help="print the times as JSON")


def _run(options: argparse.Namespace) -> int:
    """Time a library that `droplet-ms tune` wrote, in turns with other programs on the same
    inputs: the median and quartiles of single runs."""
    from ..runtime import InferenceSession, SessionError

    try:
        session = InferenceSession(options.model, threads=options.threads)
        feed = _inputs(options, session)
        runs: dict[str, Callable[[], Any]] = {OURS: lambda: session.run(None, feed)}
        runs[OURS]()
        file, *programs = options.against or [None]
        if file is not None:
            for name in programs or _installed():
                runs[name] = _program(name)(file, feed, session.threads)
        timers = {name: _timer(run) for name, run in runs.items()}
        rests = session.threads > 1 and len(timers) > 1
        secs = time_in_alternation(timers, options.rounds, rests=rests)
        counts = [2**power for power in range((options.processes or 0).bit_length())]
        throughput = {count: _throughput(options, session.threads, count) for count in counts}
    except SessionError as error:
        return fail("bench", error)
    if options.json:
        content = {
            "threads": session.threads,
            "milliseconds": {
                name: [1e3 * quartile for quartile in quartiles(each)]
                for name, each in secs.items()
            },
            "runs_per_second": throughput,
        }
        print(json.dumps(content, indent=1))
        return 0
    for name, each in secs.items():
        low, middle, high = (1e3 * quartile for quartile in quartiles(each))
        line = f"{name}: {middle:.4g} ms ({low:.4g} to {high:.4g})"
        if name != OURS:
            low, middle, high = quartiles([b / a for a, b in zip(secs[OURS], each)])
            line += f", {middle:.2f} times the time of {OURS} ({low:.2f} to {high:.2f})"
        print(line)
    for count, rate in throughput.items():
        print(f"{count} {'process' if count == 1 else 'processes'}: {rate:.4g} runs per second")
    return 0


def _inputs(options: argparse.Namespace, session: "InferenceSession") -> dict[str, "np.ndarray"]:
    """The inputs of ``--input``; random ones of the first shape for the others."""
    import numpy as np

    given = read_inputs(options.input, session)
    generator = np.random.default_rng(0)
    shapes = session.info.buckets.buckets[0].inputs
    for spec, shape in zip(session.info.inputs, shapes, strict=True):
        if spec.name not in given:
            array = session.empty_input(spec.name, shape)
            if "float" in spec.dtype:
                array[...] = generator.standard_normal(shape)
            given[spec.name] = array
    return given


def _onnxruntime(file: str, feed: Mapping[str, Any], threads: int) -> Callable[[], Any]:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(feed))


def _openvino(file: str, feed: Mapping[str, Any], threads: int) -> Callable[[], Any]:
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    core = openvino.Core()
    model = core.read_model(file)
    model.reshape({name: list(array.shape) for name, array in feed.items()})
    compiled = core.compile_model(model, "CPU", settings)
    return lambda: compiled(dict(feed))


PROGRAMS: Mapping[str, Callable[..., Callable[[], Any]]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}
"""The programs that run ONNX files; each takes the file, the inputs and the threads."""


def _installed() -> list[str]:
    from importlib.util import find_spec

    return [name for name in PROGRAMS if find_spec(name) is not None]


def _program(name: str) -> Callable[[str, Mapping[str, Any], int], Callable[[], Any]]:
    """A program that names itself in errors."""
    from ..runtime import SessionError

    if name not in PROGRAMS:
        raise SessionError(f"--against {name!r}: expected one of {', '.join(PROGRAMS)}")

    def start(file: str, feed: Mapping[str, Any], threads: int) -> Callable[[], Any]:
        # Each program has error classes of its own.
        try:
            run = PROGRAMS[name](file, feed, threads)
            run()
        except Exception as error:
            raise SessionError(f"{name} cannot run {file!r}: {first_line(error)}") from error
        return run

    return start


def _timer(run: Callable[[], Any]) -> Callable[[], float]:
    """A function that runs a program once, and returns the seconds."""

    def timed() -> float:
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    return timed


_SERVER = """
import sys, time
from argparse import Namespace
from tvm_droplet_ms.cli.bench import _inputs
from tvm_droplet_ms.runtime import InferenceSession

model, threads, secs, *files = sys.argv[1:]
session = InferenceSession(model, threads=int(threads))
feed = _inputs(Namespace(input=files), session)
session.run(None, feed)
print("ready", flush=True)
sys.stdin.readline()
end, count = time.monotonic() + float(secs), 0
while time.monotonic() < end:
    session.run(None, feed)
    count += 1
print(count)
"""


def _throughput(options: argparse.Namespace, threads: int, count: int) -> float:
    """The runs per second of several processes at once.

    Raises ``SessionError`` if one of them does not start.
    """
    from ..runtime import SessionError

    settings = [str(threads), str(_THROUGHPUT_SECS)]
    command = [sys.executable, "-c", _SERVER, options.model, *settings]
    pipe = subprocess.PIPE
    servers = [
        subprocess.Popen(
            [*command, *options.input], stdin=pipe, stdout=pipe, text=True, env=os.environ
        )
        for _ in range(count)
    ]
    started = [server.stdout is not None and server.stdout.readline() for server in servers]
    if not all(started):
        for server in servers:
            server.kill()
        raise SessionError(
            f"{started.count('')} of {count} processes ended before they ran the model: pass fewer "
            "--processes"
        )
    for server in servers:
        assert server.stdin is not None
        server.stdin.write("\n")
        server.stdin.flush()
    total = sum(int(server.communicate()[0]) for server in servers)
    return total / _THROUGHPUT_SECS

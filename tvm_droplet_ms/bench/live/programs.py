# SPDX-License-Identifier: Apache-2.0
"""Programs that run one model, each in a process of its own, timed in turns.

Runtimes in one process share thread pools and allocators, and one that crashes ends them all.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

WARMING = 2
"""Rounds that do not count."""

PAUSE_SECS = 0.05
"""Between two runs: threads of the one before stop spinning."""


class ProgramError(Exception):
    """A program cannot run the model; the message is its last error, or the last line printed."""


@dataclass
class Program:
    """A process that runs a model once for each line that it is sent.

    - ``settings``: ``name`` of a baseline, or ``library``, the path of a compiled model; ``model``,
      ``threads`` and ``inputs``, the path of an ``.npz`` file.
    - ``folder``: an existing directory for its files.

    Raises ``ProgramError`` if the process ends before the model has run once.
    """

    settings: Mapping[str, Any]
    folder: Path
    outputs: list[np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        log = self.folder / "log"
        command = [sys.executable, "-m", f"{__package__}.programs"]
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [*command, json.dumps({**self.settings, "folder": str(self.folder)})],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            self._read()
        except ProgramError as error:
            raise ProgramError(_reason(log.read_text()) or str(error)) from error
        with np.load(self.folder / "outputs.npz") as file:
            self.outputs = [file[name] for name in file.files]

    def time(self) -> float:
        """Run the model once; returns the seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._read()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> float:
        """The next line that is a number: some runtimes print lines of their own."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_MARK):
                return float(line.removeprefix(_MARK))
        raise ProgramError(f"it ended with exit status {self._process.wait()}")


def time_in_turns(programs: Mapping[str, Program], rounds: int) -> dict[str, list[float]]:
    """Seconds of each program in each round, by name."""
    secs: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(-WARMING, rounds):
        for name, program in programs.items():
            taken = program.time()
            time.sleep(PAUSE_SECS)
            if number >= 0:
                secs[name].append(taken)
    return secs


_MARK = "seconds: "

_LONGEST = 120
"""Characters of a reason."""


def _reason(printed: str) -> str:
    """The last line that names an error, or the last line; empty where nothing was printed."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Unsupported)\b", line)]
    return (errors or lines or [""])[-1][:_LONGEST]


def _serve(settings: Mapping[str, Any]) -> None:
    """Make the program, run it once, and then once for each line of standard input."""
    folder = Path(settings["folder"])
    with np.load(settings["inputs"]) as file:
        inputs = [file[name] for name in file.files]
    run = _make(settings, folder, inputs)
    np.savez(folder / "outputs.npz", *run())
    print(f"{_MARK}0", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        run()
        print(f"{_MARK}{time.perf_counter() - start}", flush=True)


def _make(settings: Mapping[str, Any], folder: Path, inputs: Sequence[np.ndarray]) -> Any:
    if "library" in settings:
        from ...session.threads import set_own_threads
        from ...tuning.compile.compiled_model import CompiledModel

        set_own_threads(settings["threads"])
        compiled = CompiledModel.load(Path(settings["library"]))
        return lambda: compiled(inputs)
    from .baselines import BASELINES, ModelFiles

    make = BASELINES[settings["name"]]
    return make(ModelFiles(settings["model"], folder), list(inputs), settings["threads"])


if __name__ == "__main__":
    _serve(json.loads(sys.argv[1]))

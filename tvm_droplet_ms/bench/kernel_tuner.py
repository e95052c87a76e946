# Licensed to the Apache Software Foundation (ASF) under one
# or more contributor license agreements.  See the NOTICE file
# distributed with this work for additional information
# regarding copyright ownership.  The ASF licenses this file
# to you under the Apache License, Version 2.0 (the
# "License"); you may not use this file except in compliance
# with the License.  You may obtain a copy of the License at
#
#   http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing,
# software distributed under the License is distributed on an
# "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY
# KIND, either express or implied.  See the License for the
# specific language governing permissions and limitations
# under the License.
"""Kernel Tuner's measured search spaces: its cache files, and files in the T4 format."""

import gzip
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .space import SpaceError

Configuration = tuple[Any, ...]

INVALIDITY = {
    "constraints": "constraint",
    "compile": "compile",
    "runtime": "runtime",
    "timeout": "timeout",
    "correctness": "wrong result",
}
"""T4's kinds of failure, as those of ``space.FAILURES``."""

CACHE_ERRORS = {
    "InvalidConfig": "constraint",
    "CompilationFailedConfig": "compile",
    "RuntimeFailedConfig": "runtime",
}
"""Kernel Tuner's error values, which stand for a time in its cache files and in T4."""

_CACHE_SECS = (
    "compile_time",
    "verification_time",
    "benchmark_time",
    "strategy_time",
    "framework_time",
)
_UNITS = {"seconds": 1.0, "s": 1.0, "milliseconds": 1e-3, "miliseconds": 1e-3, "ms": 1e-3}


@dataclass(frozen=True)
class TunedSpace:
    """A space that another tuner has measured exhaustively.

    Parameters
    ----------
    parameters : Mapping[str, tuple]
        The values of each parameter in their order, in the order of the configurations' elements.
    configurations : tuple[tuple, ...]
        All configurations that the constraints allow.
    times : tuple[float, ...]
        The objective of each, smaller being better, in the unit of the file (milliseconds for
        Kernel Tuner's "time"); infinity where it failed.
    failures : tuple[str | None, ...]
        One of ``space.FAILURES`` for each, or None.
    secs : tuple[float, ...]
        What evaluating each took, in seconds: building, checking, timing and overheads.
    """

    parameters: Mapping[str, tuple[Any, ...]]
    configurations: tuple[Configuration, ...]
    times: tuple[float, ...]
    failures: tuple[str | None, ...]
    secs: tuple[float, ...]

    @cached_property
    def index(self) -> dict[Configuration, int]:
        """The index of each configuration."""
        return {configuration: i for i, configuration in enumerate(self.configurations)}

    @staticmethod
    def load(path: Path, objective: str = "time") -> "TunedSpace":
        """Read a cache file or a T4 file, compressed where the name ends in ``.gz``.

        Both are those of Kernel Tuner 1.x and of github.com/AutoTuningAssociation/benchmark_hub.
        A cache file that Kernel Tuner left open, without its last brackets, is read too. T4 has no
        list of values: those of a parameter are sorted if they are numbers, else as they appear.

        Parameters
        ----------
        path : Path
            The file.
        objective : str
            The measurement to take as the time; smaller is better.

        Raises
        ------
        SpaceError
            If the file cannot be read, is neither, or lacks the objective.
        """
        try:
            data = path.read_bytes()
            text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
            content = _parse(text)
            if "cache" in content:
                return _from_cache(content, objective)
            if "results" in content:
                return _from_t4(content, objective)
        except (OSError, EOFError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise SpaceError(
                f"{path} cannot be read as a Kernel Tuner cache or a T4 file with the objective "
                f"{objective!r}: {error!r}"
            ) from error
        raise SpaceError(
            f"{path} has neither 'cache' nor 'results': expected a Kernel Tuner cache or a T4 file"
        )


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        # Kernel Tuner appends to an open file: each entry ends in a comma, and nothing closes it.
        return json.loads(text.rstrip().rstrip(",") + "}}")


def _from_cache(content: Mapping[str, Any], objective: str) -> TunedSpace:
    names = content["tune_params_keys"]
    entries = list(content["cache"].values())
    measured = [_time(entry[objective]) for entry in entries]
    return TunedSpace(
        parameters={name: tuple(content["tune_params"][name]) for name in names},
        configurations=tuple(tuple(entry[name] for name in names) for entry in entries),
        times=tuple(time for time, _ in measured),
        failures=tuple(failure for _, failure in measured),
        secs=tuple(sum(entry.get(key, 0.0) for key in _CACHE_SECS) * 1e-3 for entry in entries),
    )


def _from_t4(content: Mapping[str, Any], objective: str) -> TunedSpace:
    results = content["results"]
    unit = _UNITS[content.get("metadata", {}).get("timeunit", "seconds").lower()]
    names = list(results[0]["configuration"])
    configurations = tuple(tuple(r["configuration"][name] for name in names) for r in results)
    measured: list[tuple[float, str | None]] = []
    for result in results:
        if result["invalidity"] != "correct":
            measured.append((math.inf, INVALIDITY[result["invalidity"]]))
            continue
        values = {m["name"]: m["value"] for m in result.get("measurements", [])}
        measured.append(_time(values[objective]))
    return TunedSpace(
        parameters={
            name: _values([configuration[i] for configuration in configurations])
            for i, name in enumerate(names)
        },
        configurations=configurations,
        times=tuple(time for time, _ in measured),
        failures=tuple(failure for _, failure in measured),
        secs=tuple(_secs(result["times"]) * unit for result in results),
    )


def _time(value: float | str) -> tuple[float, str | None]:
    if isinstance(value, str):
        return math.inf, CACHE_ERRORS[value]
    return float(value), None


def _secs(times: Mapping[str, Any]) -> float:
    """The sum of the parts of an evaluation; ``benchmark``, where given, has the runtimes in it."""
    parts = {key: part for key, part in times.items() if key != "runtimes"}
    if "benchmark" not in parts:
        parts["runtimes"] = sum(times.get("runtimes", []))
    return float(sum(parts.values()))


def _values(column: list[Any]) -> tuple[Any, ...]:
    distinct = tuple(dict.fromkeys(column))
    numbers = all(isinstance(value, (int, float)) for value in distinct)
    return tuple(sorted(distinct)) if numbers else distinct

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
"""Export of a space to T4, the field's format of tuning results.

The schema is ``results-schema.json`` 1.0.0 of github.com/odgaard/TuningSchema (branch T4), which
Kernel Tuner and ``autotuning_methodology`` carry.
"""

import json
import math
from pathlib import Path
from typing import Any

from .space import MeasuredPoint, Space

SCHEMA_VERSION = "1.0.0"

INVALIDITY = {
    None: "correct",
    "constraint": "constraints",
    "compile": "compile",
    "runtime": "runtime",
    "timeout": "timeout",
    "wrong result": "correctness",
}
"""T4's word for each of ``space.FAILURES``."""

ERROR_VALUES = {
    "constraint": "InvalidConfig",
    "compile": "CompilationFailedConfig",
    "runtime": "RuntimeFailedConfig",
    "timeout": "RuntimeFailedConfig",
    "wrong result": "RuntimeFailedConfig",
}
"""Values in place of the time of a failure; ``autotuning_methodology`` knows no others."""


def to_t4(space: Space) -> dict[str, Any]:
    """A space as the content of a T4 file.

    Every point is a result, so that the decisions of an alias are there with the times of its
    module. Its configuration is the sketch and the integers of the decisions; a parameter is named
    after the index of the decision, its kind, and the position in a tile
    ("0_SamplePerfectTile_1"). Points of different sketches may have different parameters. The
    time is the best estimate, the runtimes are those of the passes; both, like all times here, are
    in milliseconds, as Kernel Tuner writes them.

    Parameters
    ----------
    space : Space
        The space.

    Returns
    -------
    dict[str, Any]
        Content for ``json``.
    """
    names = [
        [name for i, d in enumerate(sketch.decisions) for name in _names(i, d.kind, d.length)]
        for sketch in space.sketches
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        "metadata": {
            "timeunit": "milliseconds",
            "name": space.name,
            "description": space.description,
            "definition": space.definition,
            "target": dict(space.target),
            "machine": dict(space.machine),
            "versions": dict(space.versions),
            "date": space.date,
        },
        "results": [_result(space, point, names[point.sketch]) for point in space.points],
    }


def export_t4(space: Space, path: Path) -> None:
    """Write a space as a T4 file."""
    path.write_text(json.dumps(to_t4(space), separators=(",", ":")) + "\n")


def _names(index: int, kind: str, length: int) -> list[str]:
    if kind != "SamplePerfectTile":
        return [f"{index}_{kind}"]
    return [f"{index}_{kind}_{position}" for position in range(length)]


def _result(space: Space, point: MeasuredPoint, names: list[str]) -> dict[str, Any]:
    module = None if point.module is None else space.modules[point.module]
    failure = "constraint" if module is None else module.failure
    time = module.time if module else math.inf
    value = 1e3 * time if failure is None else ERROR_VALUES[failure]
    return {
        "timestamp": space.date,
        "configuration": {
            "sketch": point.sketch,
            **dict(zip(names, point.decisions, strict=True)),
        },
        "objectives": ["time"],
        "times": {
            "compilation": 1e3 * module.build_secs if module else 0.0,
            "runtimes": [1e3 * secs for secs in module.secs] if module else [],
            "framework": 0.0,
            "search_algorithm": 0.0,
            "validation": 0.0,
        },
        "invalidity": INVALIDITY[failure],
        "correctness": 1 if failure is None else 0,
        "measurements": [{"name": "time", "value": value, "unit": "ms"}],
    }

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
"""Makes a space: enumerate, build, measure in passes, write the file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from tvm.ir import IRModule
from tvm.target import Target

from ..host import cpu_name, tvm_num_threads
from ..search_strategy.design_spaces import SpacePoint
from .collection import Collection, Progress
from .definition import Definition
from .enumeration import Enumeration, enumerate_space
from .space import MeasuredPoint, Space

PACKAGES = ("apache-tvm", "apache-tvm-ffi", "tvm-droplet-ms")


@dataclass
class SpaceBuilder:
    """Builds one space in a directory, so that an interrupted build is resumed.

    Parameters
    ----------
    definition : Definition
        The workload and its design space.
    name : str
        Name that ``find_definition`` finds it by.
    target : Target
        Target to build for.
    directory : Path
        Work directory; see ``work_directory.claim``.
    progress : Progress
        Called with the progress.
    """

    definition: Definition
    name: str
    target: Target
    directory: Path
    progress: Progress

    def __post_init__(self) -> None:
        # First, since it refuses a directory that is not its own, and enumerating takes minutes.
        self._collection = Collection(self.directory, self.definition.mod, self.target)
        context = self.definition.context(self.target, "replay-trace")
        self._enumeration = enumerate_space(
            context, lambda done, total: self.progress("enumerating", done, total)
        )

    @property
    def modules(self) -> list[int]:
        """The structural hashes of the distinct modules."""
        return list(self._enumeration.modules)

    def build(self) -> None:
        """Build the modules that are not built yet."""
        modules = {name: self._maker(point) for name, point in self._enumeration.modules.items()}
        self._collection.build(modules, self.progress)

    def measure(self, passes: Sequence[int]) -> None:
        """Time every module once in each of the passes that are not done yet."""
        self._collection.measure(self.modules, passes, self.progress)

    def space(self) -> Space:
        """The space as it has been measured so far."""
        index = {name: i for i, name in enumerate(self.modules)}
        return Space(
            name=self.definition.name,
            description=self.definition.description,
            definition=self.name,
            target=target_as_data(self.target),
            machine=describe_machine(),
            versions=describe_versions(),
            date=date.today().isoformat(),
            sketches=self._enumeration.design_space.layouts(),
            points=space_points(self._enumeration, index),
            modules=tuple(self._collection.measured(name) for name in self.modules),
        )

    def _maker(self, point: SpacePoint) -> Callable[[], IRModule]:
        def make() -> IRModule:
            candidate = self._enumeration.design_space.realise(point)
            if candidate is None:
                raise RuntimeError(f"point {point} replayed when enumerated, and does not now")
            return candidate.schedule.mod

        return make


def build_space(
    definition: Definition,
    name: str,
    target: Target,
    directory: Path,
    out: Path,
    *,
    passes: int,
    progress: Progress,
) -> None:
    """Enumerate, build and measure a space, and write its file.

    Parameters
    ----------
    definition : Definition
        The workload and its design space.
    name : str
        Name that ``find_definition`` finds it by.
    target : Target
        Target to build for.
    directory : Path
        Work directory; see ``work_directory.claim``.
    out : Path
        The file.
    passes : int
        Number of timings of each module.
    progress : Progress
        Called with the progress.
    """
    builder = SpaceBuilder(definition, name, target, directory, progress)
    builder.build()
    builder.measure(range(passes))
    builder.space().save(out)


def space_points(enumeration: Enumeration, index: dict[int, int]) -> tuple[MeasuredPoint, ...]:
    """The points of an enumeration, their modules by index."""
    return tuple(
        MeasuredPoint(sketch, decisions, None if module is None else index[module])
        for (sketch, decisions), module in enumeration.points.items()
    )


def target_as_data(target: Target) -> dict[str, Any]:
    """Data from which ``Target`` makes the same target."""
    return {
        "kind": str(target.kind.name),
        **{str(name): _plain(value) for name, value in target.attrs.items()},
    }


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float):
        return value
    return str(value) if isinstance(value, str) else [_plain(item) for item in value]


def describe_machine() -> dict[str, Any]:
    """The processor, its logical CPUs and memory, and the threads of a parallel kernel."""
    return {
        "cpu": cpu_name(),
        "cpus": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "threads": tvm_num_threads(),
    }


def describe_versions() -> dict[str, str]:
    """The versions of the packages that a space depends on."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found

# SPDX-License-Identifier: Apache-2.0
"""Makes measured spaces and samples: choose points, build, measure in passes, write the file."""

from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tvm.target import Target

from ...compat.versions import package_version
from ...host import cpu_name, tvm_num_threads
from ...session.cuda import device_name
from ...session.target import runs_on
from ...session.work_dir import plain
from ..definition import Definition
from ..space import MeasuredPoint, Space
from .collection import Collection, Progress
from .enumeration import enumerate_space
from .sampling import SampleCollection

PACKAGES = ("apache-tvm", "apache-tvm-ffi", "tvm-droplet-ms")

_RANDOM_SHARE = 0.5
"""Share of a sample drawn by TVM's own sampling, so that it also has slow schedules. The rest is
near the best schedules."""

_ROUND = 32
"""Number of points in a sampling round."""


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

    ``name``: the definition's name for ``find_definition``. ``directory``: work directory; see
    ``work_directory.claim``. ``passes``: number of timings of each module.
    """
    # Claim the directory first: it may be refused, and enumeration takes minutes.
    collection = Collection(directory, definition.mod, target)
    enumeration = enumerate_space(
        definition.context(target, "replay-trace"),
        lambda done, total: progress("enumerating", done, total),
    )
    first = enumeration.modules
    modules = list(first)
    make = enumeration.design_space.module
    collection.build({module: partial(make, place) for module, place in first.items()}, progress)
    collection.measure(modules, range(passes), progress)
    index = {module: i for i, module in enumerate(modules)}
    Space(
        **_origin(definition, name, target),
        sketches=enumeration.design_space.layouts(),
        points=tuple(
            MeasuredPoint(sketch, decisions, None if module is None else index[module])
            for (sketch, decisions), module in enumeration.points.items()
        ),
        modules=tuple(map(collection.measured, modules)),
    ).save(out)


def build_sample(
    definition: Definition,
    name: str,
    target: Target,
    directory: Path,
    out: Path,
    *,
    points: int,
    passes: int,
    progress: Progress,
) -> None:
    """Sample a space, build and measure the sample, and write its file."""
    collection = SampleCollection(directory, definition, target)
    at_random = max(1, round(_RANDOM_SHARE * points))
    collection.add_random(at_random, progress)
    collection.add_near(points - at_random, _ROUND, progress)
    collection.measure(range(passes), progress)
    modules = list(collection.modules.values())
    Space(
        **_origin(definition, name, target),
        sketches=collection.sampler.layouts,
        points=tuple(MeasuredPoint(*module.place, i) for i, module in enumerate(modules)),
        modules=tuple(collection.measurements.measured(module.name) for module in modules),
        closed=False,
        origins=tuple(module.origin for module in modules),
    ).save(out)


def _origin(definition: Definition, name: str, target: Target) -> dict[str, Any]:
    """The origin of a space: its workload, machine, versions and date."""
    return {
        "name": definition.name,
        "description": definition.description,
        "definition": name,
        "target": target_as_data(target),
        "machine": {
            "cpu": cpu_name(),
            "cpus": psutil.cpu_count(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30),
            "threads": tvm_num_threads(),
            **({} if runs_on(target) == "cpu" else {"device": device_name()}),
        },
        "versions": {package: package_version(package) for package in PACKAGES},
        "date": date.today().isoformat(),
    }


def target_as_data(target: Target) -> dict[str, Any]:
    """A dict from which ``Target`` makes the same target."""
    return {"kind": str(target.kind.name), **plain(target.attrs)}

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
"""Makes a sample of a design space: data to learn from, with no answer for the other points."""

from datetime import date
from pathlib import Path

from tvm.target import Target

from ..building import describe_machine, describe_versions, target_as_data
from ..collection import Progress
from ..definition import Definition
from ..space import MeasuredPoint, Space
from .collection import SampleCollection

_RANDOM_SHARE = 0.5
"""Share of a sample that TVM's own sampling draws, so that slow schedules are known too; the rest
is near the best."""

_ROUND = 32


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
    """Sample a space, build and measure the sample, and write its file.

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
        File to write.
    points : int
        Number of points.
    passes : int
        Number of timings of each point.
    progress : Progress
        Called with the progress.
    """
    collection = SampleCollection(directory, definition, target)
    at_random = max(1, round(_RANDOM_SHARE * points))
    collection.add_random(at_random, progress)
    collection.add_near(points - at_random, _ROUND, progress)
    collection.measure(range(passes), progress)
    _as_space(definition, name, target, collection).save(out)


def _as_space(
    definition: Definition, name: str, target: Target, collection: SampleCollection
) -> Space:
    modules = collection.modules.values()
    return Space(
        name=definition.name,
        description=definition.description,
        definition=name,
        target=target_as_data(target),
        machine=describe_machine(),
        versions=describe_versions(),
        date=date.today().isoformat(),
        sketches=collection.sampler.layouts,
        points=tuple(MeasuredPoint(*module.place, i) for i, module in enumerate(modules)),
        modules=tuple(collection.measurements.measured(module.name) for module in modules),
        closed=False,
        origins=tuple(module.origin for module in modules),
    )

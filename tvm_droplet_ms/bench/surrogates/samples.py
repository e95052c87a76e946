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
"""A measured sample of a design space: nothing answers for the rest, but it can be learned from."""

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from tvm.target import Target

from ..building import describe_machine, describe_versions, target_as_data
from ..collection import Progress
from ..definition import Definition
from ..space import Space, SpacePoint
from .sample_collection import SampleCollection

_UNIFORM_SHARE = 0.5
"""Which share TVM's own sampling draws, so that what is slow is known too; the rest is chosen near
the best, where searches go."""

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
    """Sample a space, build and measure what was drawn, and write its file.

    Parameters
    ----------
    definition : Definition
        The workload and its design space.
    name : str
        What ``find_definition`` finds it by.
    target : Target
        What to build for.
    directory : Path
        Where what is done is kept.
    out : Path
        The file.
    points : int
        How many points.
    passes : int
        How often every point is timed.
    progress : Progress
        Told what is done.
    """
    collection = SampleCollection(directory, definition, target)
    uniform = max(1, round(_UNIFORM_SHARE * points))
    collection.add_uniform(uniform, progress)
    collection.add_near(points - uniform, _ROUND, progress)
    collection.measure(range(passes), progress)
    sampled_space(definition, name, target, collection, list(collection.modules)).save(out)


def sampled_space(
    definition: Definition,
    name: str,
    target: Target,
    collection: SampleCollection,
    modules: Sequence[int],
) -> Space:
    """Some modules of a sample as a space that is not closed.

    Parameters
    ----------
    definition : Definition
        The workload and its design space.
    name : str
        What ``find_definition`` finds it by.
    target : Target
        What it was built for.
    collection : SampleCollection
        The sample.
    modules : Sequence[int]
        Which modules, by structural hash.
    """
    sampled = [collection.modules[module].sampled for module in modules]
    return Space(
        name=definition.name,
        description=definition.description,
        definition=name,
        target=target_as_data(target),
        machine=describe_machine(),
        versions=describe_versions(),
        date=date.today().isoformat(),
        sketches=tuple(sketch.layout() for sketch in collection.sampler.sketches),
        points=tuple(SpacePoint(*point, i) for i, point in enumerate(sampled)),
        modules=tuple(collection.measurements.measured(module) for module in modules),
        closed=False,
    )

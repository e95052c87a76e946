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

"""Times the points of a measured space once more, on another machine or for another target."""

from collections.abc import Callable
from datetime import date
from pathlib import Path

import numpy as np
from scipy import stats

from tvm.ir import IRModule
from tvm.target import Target

from ..building import describe_machine, describe_versions, target_as_data
from ..collection import Collection, Progress
from ..definitions import definition_of
from ..design_space import DesignSpace
from ..space import MeasuredPoint, Space
from ..work_directory import CollectionError


def time_alike(
    like: Space,
    target: Target,
    directory: Path,
    out: Path,
    *,
    points: int | None = None,
    passes: int,
    progress: Progress,
    seed: int = 0,
) -> Space:
    """Build and time the points of a space on this machine, and write them to a file.

    The points are the same decisions in the same sketches. Their modules may be others, where the
    target decides what the postprocessors make of them.

    Parameters
    ----------
    like : Space
        A space or a sample.
    target : Target
        Target to build for.
    directory : Path
        Work directory; see ``work_directory.claim``.
    out : Path
        File to write.
    points : int | None
        Number of points, drawn at random; None for one point of each module that was timed. The
        same seed draws the same points on every machine.
    passes : int
        Number of timings of each point.
    progress : Progress
        Called with the progress.
    seed : int
        Seed of the draw.

    Returns
    -------
    space : Space
        A sample. A point that this target refuses has no module.

    Raises
    ------
    CollectionError
        If the directory holds other files, the design space has other decisions for this target, or
        nothing of the space has a time.
    """
    definition = definition_of(like)
    design_space = DesignSpace(definition.context(target, "replay-trace"))
    if design_space.layouts() != like.sketches:
        raise CollectionError(
            f"the design space of {like.name} has other decisions for target {target} than for "
            f"{dict(like.target)}, so that its points are not the same; time it for a target of as "
            "many cores, and with the versions that made it"
        )
    chosen = _chosen(like, points, seed)
    if not chosen:
        raise CollectionError(f"no module of {like.name} has a time, so that there are no points")
    collection = Collection(directory, definition.mod, target)
    makers: dict[int, Callable[[], IRModule]] = {}
    found: list[tuple[MeasuredPoint, int | None]] = []
    for done, point in enumerate(chosen, start=1):
        place = point.sketch, point.decisions
        candidate = design_space.realise(place)
        name = None if candidate is None else candidate.module
        if name is not None and name not in makers:
            makers[name] = _maker(design_space, place)
        found.append((point, name))
        progress("replaying", done, len(chosen))
    collection.build(makers, progress)
    collection.measure(list(makers), range(passes), progress)
    index = {name: number for number, name in enumerate(makers)}
    space = Space(
        name=like.name,
        description=like.description,
        definition=like.definition,
        target=target_as_data(target),
        machine=describe_machine(),
        versions=describe_versions(),
        date=date.today().isoformat(),
        sketches=like.sketches,
        points=tuple(
            MeasuredPoint(point.sketch, point.decisions, None if name is None else index[name])
            for point, name in found
        ),
        modules=tuple(collection.measured(name) for name in makers),
        closed=False,
    )
    space.save(out)
    return space


def rank_correlation(one: Space, other: Space) -> tuple[float, int]:
    """Spearman's rank correlation of the times of the points that two spaces have in common.

    It bounds what can be learned from one machine for the other.

    Parameters
    ----------
    one, other : Space
        Two measurements of one design space.

    Returns
    -------
    correlation : float
        From -1 to 1; NaN where fewer than three points have a time in both, or all are equal.
    points : int
        The number of such points.
    """
    times = [
        (one.times[point.module], other.times[other_point.module])
        for place, number in one.point_index.items()
        if (point := one.points[number]).module is not None
        and (other_number := other.point_index.get(place)) is not None
        and (other_point := other.points[other_number]).module is not None
    ]
    pairs = np.array([pair for pair in times if np.isfinite(pair).all()]).reshape(-1, 2)
    if len(pairs) < 3 or not np.ptp(pairs, axis=0).all():
        return float("nan"), len(pairs)
    return float(stats.spearmanr(*pairs.T).statistic), len(pairs)


def _chosen(like: Space, count: int | None, seed: int) -> list[MeasuredPoint]:
    """The first point of each module that has a time, or of some of them, in their order."""
    first: dict[int, MeasuredPoint] = {}
    for point in like.points:
        if point.module is not None and np.isfinite(like.times[point.module]):
            first.setdefault(point.module, point)
    known = list(first.values())
    drawn = np.random.default_rng(seed).permutation(len(known))[:count]
    return [known[number] for number in sorted(drawn)]


def _maker(design_space: DesignSpace, place: tuple[int, tuple[int, ...]]) -> Callable[[], IRModule]:
    def make() -> IRModule:
        candidate = design_space.realise(place)
        if candidate is None:
            raise RuntimeError(f"point {place} replayed before, and does not now")
        return candidate.schedule.mod

    return make

# SPDX-License-Identifier: Apache-2.0
"""Training data for a cost model, from the measurements of spaces and samples."""

from pathlib import Path

import numpy as np

from ..cost_model.features.program_features import Extractor, ProgramFeatures
from ..cost_model.training_data import MeasuredWorkload, target_text
from ..session.archive import replacing
from .definition import context_of
from .design_space import DesignSpace, measured_candidate
from .space import Space

MOST_PROGRAMS = 1024
"""Maximum number of programs, drawn at random, to learn from in a closed space. A closed space is
small, and more of its programs teach little about other workloads. A sample has no limit."""


def read_space(
    path: Path, *, most: int | None = None, extractor: Extractor | None = None
) -> MeasuredWorkload:
    """Features and measured times of randomly drawn programs of a space or a sample.

    ``most``: maximum number of programs; None for all of a sample, and ``MOST_PROGRAMS`` of a
    closed space. ``extractor``: None for ``ProgramFeatures``. Raises ``SpaceError`` if the file is
    not a space, or if this TVM makes other modules from its points.
    """
    space = Space.load(path)
    context = context_of(space)
    design_space = DesignSpace(context)
    kept = drawn_modules(space, most)
    candidates = [
        measured_candidate(space, space.first_points[index], design_space).measure_candidate()
        for index in kept
    ]
    features = (extractor or ProgramFeatures()).extract(context, candidates)
    secs = np.array([space.times[index] for index in kept])
    return MeasuredWorkload(space.name, target_text(context.target), features, secs)


def drawn_modules(space: Space, most: int | None = None) -> list[int]:
    """The indices of the modules that ``read_space`` draws."""
    if most is None:
        most = MOST_PROGRAMS if space.closed else len(space.modules)
    drawn = np.random.default_rng(0).permutation(len(space.modules))[:most]
    return sorted(int(index) for index in drawn)


def read_space_once(
    path: Path, cache: Path, *, extractor: Extractor | None = None
) -> MeasuredWorkload:
    """``read_space``, cached in a ``.npz`` file, because replaying a space takes minutes.

    A file with features of another kind is overwritten.
    """
    used = extractor or ProgramFeatures()
    if cache.exists():
        with np.load(cache) as kept:
            if str(kept["schema"]) == used.schema and kept["features"].shape[1] == used.width:
                texts = str(kept["name"]), str(kept["target"])
                return MeasuredWorkload(*texts, kept["features"], kept["secs"])
    workload = read_space(path, extractor=used)
    with replacing(cache) as partial, partial.open("wb") as file:
        np.savez_compressed(file, schema=used.schema, **vars(workload))
    return workload

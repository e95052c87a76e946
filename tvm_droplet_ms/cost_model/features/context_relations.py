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
"""Relations between the loops of a nest, at a length that does not depend on how many there are.

After the context relation features of "Learning to Optimize Tensor Programs" (Chen et al., 2018):
of two features i and j of the loops k, R_t = max {Z_ki : Z_kj <= beta_t}, at thresholds beta_t that
do not depend on the workload. Imports no TVM.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

SIZES = 2.0 ** np.arange(4, 25)
"""The thresholds: sizes of a cache in bytes, from 16 B to 16 MiB."""

NESTS = 3
"""Of how many nests of a module the relations are kept: those that iterate most."""

ACCESSES = 4
"""Of how many accesses of a nest: those that touch most."""

_COARSE = SIZES[::2]
_OF_NEST = 2 * len(SIZES) + ACCESSES * len(_COARSE)

RELATIONS = len(SIZES) + NESTS * _OF_NEST
"""How many features ``relations`` has."""


class _Access(Protocol):
    @property
    def touched(self) -> np.ndarray: ...


class _Nest(Protocol):
    @property
    def iterations(self) -> np.ndarray: ...
    @property
    def accesses(self) -> Sequence[_Access]: ...


def relations(nests: Sequence[_Nest]) -> np.ndarray:
    """How much iterates within each size of a cache, and how much must be moved into it.

    The traffic into a cache is what the largest loops whose working set fits it touch, as often as
    they are entered. First comes the traffic of all nests together at each of ``SIZES``. Then, for
    each of the ``NESTS`` nests that iterate most: the iterations within each size; the traffic into
    it; and the traffic of each of the ``ACCESSES`` accesses that touch most, at every other size.

    Parameters
    ----------
    nests : Sequence[LoopNest]
        The loop nests of a module.

    Returns
    -------
    features : np.ndarray
        Logarithms to base 2 of iterations and of bytes plus one, of shape ``(RELATIONS,)``,
        float32; zeros where there is nothing.
    """
    known = [nest for nest in nests if len(nest.iterations) and nest.accesses]
    known.sort(key=lambda nest: -nest.iterations[-1])
    features = np.zeros(RELATIONS)
    together = sum((_traffic(nest, SIZES).sum(axis=0) for nest in known), np.zeros(len(SIZES)))
    features[: len(SIZES)] = np.log2(1.0 + together)
    for place, nest in enumerate(known[:NESTS]):
        start = len(SIZES) + place * _OF_NEST
        parts = [_within(nest, SIZES), 1.0 + _traffic(nest, SIZES).sum(axis=0)]
        most = sorted(_traffic_by_size(nest), key=lambda pair: -pair[0])[:ACCESSES]
        parts += [1.0 + traffic for _, traffic in most]
        of_nest = np.log2(np.concatenate(parts))
        features[start : start + len(of_nest)] = of_nest
    return features.astype(np.float32)


def _fitting(nest: _Nest, sizes: np.ndarray) -> np.ndarray:
    """For each size the outermost loop whose working set fits, from 0; -1 where none does."""
    working_sets = np.sum([access.touched for access in nest.accesses], axis=0)
    return np.asarray(np.searchsorted(working_sets, sizes, side="right") - 1)


def _within(nest: _Nest, sizes: np.ndarray) -> np.ndarray:
    """The iterations that fit each size."""
    return np.asarray(np.concatenate([nest.iterations, [1.0]])[_fitting(nest, sizes)])


def _traffic(nest: _Nest, sizes: np.ndarray) -> np.ndarray:
    """The bytes of each access that are moved into each size, of shape ``(accesses, sizes)``.

    Where not even the innermost loop fits, every iteration moves what it touches.
    """
    touched = np.array([access.touched for access in nest.accesses])
    once = touched[:, :1] / nest.iterations[0]
    moved = np.concatenate([touched, once], axis=1)[:, _fitting(nest, sizes)]
    entered = nest.iterations[-1] / _within(nest, sizes)
    return np.asarray(moved * entered)


def _traffic_by_size(nest: _Nest) -> list[tuple[float, np.ndarray]]:
    """Of each access what the whole nest touches, and its traffic at every other size."""
    return [
        (float(access.touched[-1]), traffic)
        for access, traffic in zip(nest.accesses, _traffic(nest, _COARSE), strict=True)
    ]

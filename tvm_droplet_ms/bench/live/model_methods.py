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
"""The methods of the comparison of whole models. Imports no TVM."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class TuneMethod:
    """``tune``.

    Parameters
    ----------
    exact : bool
        Whether convolutions are computed as they are written.
    """

    exact: bool = True


@dataclass(frozen=True)
class TvmMethod:
    """TVM's ``relax.pipeline.static_shape_tuning_pipeline``.

    Parameters
    ----------
    num_trials_per_iter : int
        Trials of a batch: TVM measures none of a second task before that.
    packs_weights : bool
        Whether weights are packed as the schedules want them, as with ``cpu_weight_prepack=True``.
        The weights are constants here, so that they are packed while the model compiles.
    build_timeout_secs : float
        Seconds that a build may take. TVM's builder starts new processes for each batch, and their
        first build imports all tensor intrinsics: on a busy machine that alone takes more than the
        default, and all builds fail.
    measures_fast : bool
        Whether ``fast_measure`` builds and runs, and intrinsics are imported as they are needed.
    strategy : str
        The search strategy, as ``SearchStrategy.create`` takes it.
    """

    num_trials_per_iter: int = 64
    packs_weights: bool = False
    build_timeout_secs: float = 30.0
    measures_fast: bool = False
    strategy: str = "evolutionary"


METHODS: Mapping[str, TuneMethod | TvmMethod] = {
    "tune": TuneMethod(),
    "tune with winograd": TuneMethod(exact=False),
    "static_shape_tuning": TvmMethod(),
    "static_shape_tuning, small batches": TvmMethod(
        num_trials_per_iter=8, build_timeout_secs=120.0
    ),
    "static_shape_tuning, small batches, packed": TvmMethod(
        num_trials_per_iter=8, packs_weights=True, build_timeout_secs=120.0
    ),
    "static_shape_tuning, fast_measure": TvmMethod(
        num_trials_per_iter=8, packs_weights=True, measures_fast=True
    ),
    "static_shape_tuning, replay-trace, fast_measure": TvmMethod(
        num_trials_per_iter=8, packs_weights=True, measures_fast=True, strategy="replay-trace"
    ),
}
"""``static_shape_tuning`` is TVM's pipeline with its defaults. Those with small batches are what
TVM's interface allows to make it stronger: ``tune_relax`` takes the size of a batch and a builder.
The last two are TVM's search, also with small batches and packed weights, on this package's builder
and runner: the rest of their distance to ``tune`` is what is searched, and how. ``replay-trace`` is
TVM's random search: evolution takes 10 to 30 s to propose a batch of a convolution, whatever its
size."""

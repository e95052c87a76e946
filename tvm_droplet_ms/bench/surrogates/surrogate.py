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
"""A design space that is too large to enumerate, answered for by a regressor.

After "Surrogate NAS Benchmarks" (NAS-Bench-301, arXiv 2008.09777): a model is fitted to a sample of
measured points, answers for all others, and noise comes from the repeats of the sample.
"""

import json
import math
import random
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import xgboost
from tvm_ffi import structural_hash

from tvm.ir import IRModule
from tvm.target import Target

from ..space import MeasuredModule, Space, SpaceError
from .features import FEATURES, ModuleFeatures
from .regressor import predict

FORMAT = "tvm-droplet-ms surrogate"
VERSION = 1

LEAST_CORRELATION = 0.9
"""The rank correlation below which a surrogate is not used to decide anything."""

CROSS_VALIDATION = "cross-validation"
SEARCHES_TOGETHER = "all searches"


@dataclass(frozen=True)
class FitError:
    """How far a regressor is off on points that it was not fitted to.

    Parameters
    ----------
    points : int
        How many points.
    rank_correlation : float
        Spearman's.
    median_error : float
        The median of the relative errors.
    timing_correlation : float
        Spearman's, between two halves of the passes: how well timings tell the order themselves.
        NaN after a single pass.
    """

    points: int
    rank_correlation: float
    median_error: float
    timing_correlation: float

    @staticmethod
    def of(
        predicted: Sequence[float] | np.ndarray, measured: Sequence[MeasuredModule]
    ) -> "FitError":
        """Compare predicted with measured times.

        Parameters
        ----------
        predicted : Sequence[float] | np.ndarray
            In seconds.
        measured : Sequence[MeasuredModule]
            As many.
        """
        from scipy import stats

        times = np.array([module.time for module in measured])
        timings = math.nan
        if all(len(module.secs) > 1 for module in measured):
            one = [median(module.secs[::2]) for module in measured]
            other = [median(module.secs[1::2]) for module in measured]
            timings = float(stats.spearmanr(one, other).statistic)
        return FitError(
            len(measured),
            float(stats.spearmanr(predicted, times).statistic),
            float(np.median(np.abs(np.asarray(predicted) / times - 1.0))),
            timings,
        )


@dataclass(frozen=True)
class Surrogate:
    """Answers for every module of a design space.

    Parameters
    ----------
    sample : Space
        The sample that was measured, ``closed`` being False.
    groups : tuple[str, ...]
        How each of its modules came into the sample: "uniform", "near", or the name of a search.
    regressor : xgboost.Booster
        From ``ModuleFeatures`` to a time.
    errors : Mapping[str, FitError]
        On points held out: "cross-validation", "all searches", and each held-out search by name.
    predicted : tuple[float, ...]
        What the regressor says of the modules of the sample, in seconds.
    """

    sample: Space
    groups: tuple[str, ...]
    regressor: xgboost.Booster
    errors: Mapping[str, FitError]
    predicted: tuple[float, ...]

    @property
    def is_trusted(self) -> bool:
        """Whether it ranks points held out well enough to judge a search by."""
        return SEARCHES_TOGETHER in self.errors and all(
            error.rank_correlation >= LEAST_CORRELATION for error in self.errors.values()
        )

    @cached_property
    def space(self) -> Space:
        """The modules that TVM's own sampling drew, with their predicted times.

        What random search would see: the baseline that searches are compared with.
        """
        kept = [i for i, group in enumerate(self.groups) if group == "uniform"]
        index = {old: new for new, old in enumerate(kept)}
        points = [
            replace(point, module=index[point.module])
            for point in self.sample.points
            if point.module in index
        ]
        modules = [
            self._answer(self.sample.modules[i].structural_hash, self.predicted[i]) for i in kept
        ]
        return replace(self.sample, points=tuple(points), modules=tuple(modules))

    @property
    def best_known(self) -> float:
        """The smallest predicted time of the sample, in seconds; a search may find a smaller."""
        return min(self.predicted)

    def answer(self, mod: IRModule) -> MeasuredModule:
        """What the regressor says of a module."""
        name = structural_hash(mod)
        if name not in self._known:
            secs = float(predict(self.regressor, self._features.of([mod]))[0])
            self._known[name] = self._answer(name, secs)
        return self._known[name]

    @cached_property
    def _known(self) -> dict[int, MeasuredModule]:
        return {}

    @cached_property
    def _features(self) -> ModuleFeatures:
        return ModuleFeatures(Target(dict(self.sample.target)))

    @cached_property
    def _noise(self) -> list[tuple[float, ...]]:
        """The passes of each measured module, relative to their median."""
        return [
            tuple(secs / module.time for secs in module.secs)
            for module in self.sample.modules
            if module.secs
        ]

    @cached_property
    def _costs(self) -> tuple[float, float]:
        measured = [module for module in self.sample.modules if module.secs]
        return (
            median(module.build_secs for module in measured),
            median(module.run_secs for module in measured),
        )

    def _answer(self, name: int, secs: float) -> MeasuredModule:
        ratios = random.Random(name).choice(self._noise)
        return MeasuredModule(name, tuple(secs * ratio for ratio in ratios), *self._costs)

    def save(self, path: Path) -> None:
        """Write the surrogate as JSON."""
        regressor = bytes(self.regressor.save_raw("ubj"))
        content = {
            "format": FORMAT,
            "version": VERSION,
            "sample": self.sample.as_json(),
            "groups": self.groups,
            "errors": {name: vars(error) for name, error in self.errors.items()},
            "predicted_nanosecs": [round(secs * 1e9) for secs in self.predicted],
            "regressor": b64encode(zlib.compress(regressor, 9)).decode(),
        }
        partial = path.with_name(path.name + ".partial")
        partial.write_text(json.dumps(content, separators=(",", ":")) + "\n")
        partial.replace(path)

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Surrogate":
        """Read a surrogate; raises ``SpaceError`` for one of another version or other features."""
        if content["version"] != VERSION:
            raise SpaceError(f"surrogate version {content['version']!r}, expected {VERSION}")
        regressor = xgboost.Booster()
        regressor.load_model(bytearray(zlib.decompress(b64decode(content["regressor"]))))
        regressor.set_param({"nthread": 1})
        if regressor.num_features() != FEATURES:
            raise SpaceError(
                f"{content['sample']['name']}: the regressor was fitted to "
                f"{regressor.num_features()} features of a module, expected {FEATURES}; build it "
                "again with `droplet-ms space build`"
            )
        return Surrogate(
            sample=Space.from_json(content["sample"]),
            groups=tuple(content["groups"]),
            regressor=regressor,
            errors={name: FitError(**error) for name, error in content["errors"].items()},
            predicted=tuple(nanosecs * 1e-9 for nanosecs in content["predicted_nanosecs"]),
        )

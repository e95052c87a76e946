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
"""The programs of measured spaces, encoded for each cost model of ``cost_models``."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tvm_ffi import structural_hash

from tvm.s_tir.meta_schedule.feature_extractor import PerStoreFeature

from ...cost_model.pretrained_model import EXTRACTORS
from ...cost_model.training.training_data import MeasuredWorkload
from ..compare.results import file_digest
from ..training import read_candidates

BATCH = 64
"""Candidates that are encoded, and scored, at once."""


@dataclass(frozen=True)
class SpaceData:
    """Some programs of one space.

    Parameters
    ----------
    name : str
        The space.
    workload : int
        The structural hash of its workload.
    secs : np.ndarray
        The times in seconds, of shape ``(programs,)``; infinity for a failure.
    features : dict[str, np.ndarray]
        The features of each kind of our models, of shape ``(programs, width)``.
    stores : list[np.ndarray]
        The features of MetaSchedule's model for each program, of shape ``(stores, 164)``.
    encode_us : dict[str, float]
        The median time of encoding for each kind and for "stores", in microseconds per candidate in
        batches of ``BATCH``.
    """

    name: str
    workload: int
    secs: np.ndarray
    features: dict[str, np.ndarray]
    stores: list[np.ndarray]
    encode_us: dict[str, float]

    def as_workload(self, kind: str, rows: np.ndarray | None = None) -> MeasuredWorkload:
        """Programs for ``PretrainedModel.learn`` of a kind of model; all by default."""
        chosen = np.arange(len(self.secs)) if rows is None else rows
        return MeasuredWorkload(self.name, "{}", self.features[kind][chosen], self.secs[chosen])


def read_data(path: Path, programs: int, directory: Path) -> SpaceData:
    """Read a space and encode some of its programs, once.

    Parameters
    ----------
    path : Path
        The file of the space.
    programs : int
        The most programs, drawn at random.
    directory : Path
        The directory of the encoded programs.
    """
    schemas = "; ".join(make().schema for make in EXTRACTORS.values())
    kept = directory / f"{file_digest(path)}-{programs}.npz"
    if kept.exists():
        with np.load(kept) as content:
            if str(content["schemas"]) == schemas:
                return _unpack({name: content[name] for name in content.files})
    space, context, candidates, modules = read_candidates(path, most=programs)
    encoders: dict[str, Callable[[Any, Any], Any]] = {
        **{kind: make().extract for kind, make in EXTRACTORS.items()},
        "stores": _stores,
    }
    encoded, micros = {}, {}
    for kind, encode in encoders.items():
        parts, secs = [], []
        for start in range(0, len(candidates), BATCH):
            batch = candidates[start : start + BATCH]
            begun = time.perf_counter()
            parts.append(encode(context, batch))
            secs.append((time.perf_counter() - begun) / len(batch))
        encoded[kind], micros[kind] = parts, 1e6 * float(np.median(secs))
    stores = [feature for part in encoded["stores"] for feature in part]
    content = {
        "name": np.array(space.name),
        "workload": np.array(f"{structural_hash(context.mod):x}"),
        "secs": np.array([space.times[module] for module in modules]),
        **{kind: np.concatenate(encoded[kind]) for kind in EXTRACTORS},
        "stores": np.concatenate(stores),
        "counts": np.array([len(feature) for feature in stores]),
        "encode_us": np.array(list(micros.values())),
    }
    directory.mkdir(parents=True, exist_ok=True)
    partial = kept.with_name("partial.npz")
    np.savez_compressed(partial, schemas=schemas, **content)
    partial.replace(kept)
    return _unpack(content)


def _stores(context: Any, candidates: Sequence[Any]) -> list[np.ndarray]:
    found = PerStoreFeature().extract_from(context, list(candidates))
    return [feature.numpy().astype("float32") for feature in found]


def _unpack(content: dict[str, np.ndarray]) -> SpaceData:
    return SpaceData(
        str(content["name"]),
        int(str(content["workload"]), 16),
        content["secs"],
        {kind: content[kind] for kind in EXTRACTORS},
        np.split(content["stores"], np.cumsum(content["counts"])[:-1]),
        dict(zip((*EXTRACTORS, "stores"), content["encode_us"].tolist(), strict=True)),
    )

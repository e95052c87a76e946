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
"""Symbols of the points of a measured space."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tvm.s_tir import Trace
from tvm.target import Target

from ..cost_model.archive import replacing
from ..draft.block_tree import NotUnderstood
from ..draft.hardware import Hardware, hardware_of
from ..draft.index_intervals import UnknownIndex
from ..draft.key_symbols import Key, KeySymbols, key_of
from ..draft.penalties import PENALTIES, expected_ns
from ..draft.symbols import SYMBOLS
from ..search_strategy.neighbourhood import Point
from .definitions import definition_of
from .design_space import DesignSpace
from .space import Space

CACHES = {
    "znver4": (32 << 10, 1 << 20, 32 << 20),
    "rocketlake": (48 << 10, 2 << 20, 32 << 20),
}
"""Bytes of L1, L2 and L3 of the machines that the spaces and samples were measured on, by mcpu."""

ABLATIONS = ((), *((penalty,) for penalty in PENALTIES))
"""Penalties that the formula is without: none, then each."""


@dataclass(frozen=True)
class DraftedSpace:
    """The symbols and the times of the modules of a measured space.

    Parameters
    ----------
    name : str
        The space's name.
    symbols : np.ndarray
        Of shape ``(modules, SYMBOLS)``, float32; NaN where the key is not understood.
    formula : np.ndarray
        Nanoseconds that the formula expects, of shape ``(1 + penalties, modules)``: with all
        penalties, then without each of ``PENALTIES``; NaN where the key is not understood.
    secs : np.ndarray
        The times of the modules in seconds, of shape ``(modules,)``; infinity for failures.
    is_random : np.ndarray
        Whether TVM's own sampling made the module, of the same shape: all of an enumerated space.
    keys : int
        The keys of the space.
    unknown : Counter[str]
        Keys that were not understood, by reason.
    """

    name: str
    symbols: np.ndarray
    formula: np.ndarray
    secs: np.ndarray
    is_random: np.ndarray
    keys: int
    unknown: Counter[str]

    @property
    def usable(self) -> np.ndarray:
        """Whether a draft can learn from each module: its symbols are known, and it runs."""
        usable: np.ndarray = np.isfinite(self.symbols).all(axis=1) & np.isfinite(self.secs)
        return usable


def drafted_space_once(path: Path, kept: Path) -> DraftedSpace:
    """What ``drafted_space`` computes, kept in a file.

    Parameters
    ----------
    path : Path
        File of a space or a sample.
    kept : Path
        The file of what is computed; read where it exists.
    """
    if not kept.exists():
        space = drafted_space(path)
        content = vars(space) | {"unknown": np.array(list(space.unknown.elements()), dtype=str)}
        with replacing(kept) as partial, partial.open("wb") as file:
            np.savez_compressed(file, **content)
    with np.load(kept) as content:
        return DraftedSpace(
            str(content["name"]),
            content["symbols"],
            content["formula"],
            content["secs"],
            content["is_random"],
            int(content["keys"]),
            Counter(map(str, content["unknown"])),
        )


def drafted_space(path: Path) -> DraftedSpace:
    """Compute the symbols of the modules of a space, each from its first point.

    Parameters
    ----------
    path : Path
        File of a space or a sample.
    """
    space = Space.load(path)
    target = Target(dict(space.target))
    hardware = measured_on(target)
    context = definition_of(space).context(target, "replay-trace")
    design_space = DesignSpace(context)
    first = {point.module: point for point in reversed(space.points) if point.module is not None}
    by_key: dict[tuple[int, Key], list[int]] = {}
    for module, point in sorted(first.items()):
        key = key_of(design_space.sketches[point.sketch], point.decisions)
        by_key.setdefault((point.sketch, key), []).append(module)
    symbols = np.full((len(space.modules), SYMBOLS), np.nan, dtype=np.float32)
    formula = np.full((len(ABLATIONS), len(space.modules)), np.nan)
    unknown = Counter[str]()
    for (sketch, _), modules in by_key.items():
        points = np.array([first[module].decisions for module in modules], dtype=np.int64)
        try:
            of_key = _key_symbols(design_space, sketch, tuple(points[0].tolist()))
        except (NotUnderstood, UnknownIndex) as error:
            unknown[str(error)] += 1
            continue
        symbols[modules] = of_key.of(points)
        nests, limits = of_key.values(points)
        for row, without in enumerate(ABLATIONS):
            formula[row, modules] = expected_ns(nests, limits, hardware, without=without)
    random = np.array([origin == "random" for origin in space.origins] or [True] * len(symbols))
    times = np.array(space.times)
    return DraftedSpace(space.name, symbols, formula, times, random, len(by_key), unknown)


def measured_on(target: Target) -> Hardware:
    """One core of the machine that a space was measured on."""
    caches = CACHES.get(str(target.attrs.get("mcpu")), Hardware.caches)
    return hardware_of(target, cores=1, caches=caches, line=64)


def _key_symbols(space: DesignSpace, sketch: int, point: Point) -> KeySymbols:
    trace: Trace = space.trace((sketch, point))
    schedule = space.replayer.new_schedule()
    trace.apply_to_schedule(schedule, remove_postproc=True)
    return KeySymbols(space.sketches[sketch], schedule)

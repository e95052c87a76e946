# SPDX-License-Identifier: Apache-2.0
"""Files of fitted drafts, and the draft that comes with the package. Imports no TVM."""

import json
import os
import zipfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...session.archive import READ_ERRORS, replacing
from ..boosted_trees import Trees
from .symbols import SCHEMA

ROUNDS = 120
"""The number of trees."""

MOST_POINTS = 1024
"""Schedules to learn from per workload: more teach little about other workloads."""


def fit_draft(
    symbols: Sequence[np.ndarray], throughputs: Sequence[np.ndarray], *, seed: int = 0
) -> Trees:
    """Fit trees to the symbols of measured schedules.

    A workload weighs the square root of the number of its schedules, as in
    ``PretrainedModel.learn``. ``symbols``: for each workload, the symbols of its schedules, of
    shape ``(schedules, SYMBOLS)``. ``throughputs``: for each workload, the throughput of each
    schedule relative to the best one, of shape ``(schedules,)``. ``seed``: seeds the draw of
    schedules and the trees.
    """
    generator = np.random.default_rng(seed)
    kept = [np.sort(generator.permutation(len(row))[:MOST_POINTS]) for row in symbols]
    counts = [len(row) for row in kept]
    return Trees.fit(
        np.concatenate([rows[row] for rows, row in zip(symbols, kept, strict=True)]),
        np.concatenate([rows[row] for rows, row in zip(throughputs, kept, strict=True)]),
        np.repeat(np.arange(len(kept)), counts),
        objective="regression",
        rounds=ROUNDS,
        seed=seed,
        weights=np.repeat([count**-0.5 for count in counts], counts),
    )


FORMAT = "tvm-droplet-ms draft"

SHIPPED = Path(__file__).parent / "pretrained" / "llvm.draft"
"""The draft for CPUs that comes with the package."""

_HEADER, _TREES = "header.json", "trees.ubj"


class DraftFileError(ValueError):
    """A file does not hold a draft for this version; the message says why and what to do."""


def write_draft(path: str | os.PathLike[str], trees: Trees, workloads: Sequence[str]) -> None:
    """Write a draft to a file, which is complete or absent afterwards.

    ``trees``: the trees of ``fit_draft``. ``workloads``: the names of the workloads that the trees
    were fitted to.
    """
    header = {"format": FORMAT, "schema": SCHEMA, "workloads": list(workloads)}
    with replacing(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_HEADER, json.dumps(header, indent=1))
        archive.writestr(_TREES, trees.to_bytes())


def read_draft(path: str | os.PathLike[str]) -> Trees:
    """Read a file that ``write_draft`` wrote.

    Raises ``DraftFileError`` if the file cannot be read, is damaged, or has the symbols of another
    version.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            header: Any = json.loads(archive.read(_HEADER))
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise ValueError(f"its header is {str(header)[:80]!r}, expected that of a draft")
            content = archive.read(_TREES)
            if header.get("schema") == SCHEMA:
                return Trees.from_bytes(content, "regression", 0.0, 1.0)
    except READ_ERRORS as error:
        reason = str(error) or type(error).__name__
        raise DraftFileError(f"{os.fspath(path)} is no draft: {reason}") from error
    raise DraftFileError(
        f"{os.fspath(path)} has the symbols {header.get('schema')!r}, expected {SCHEMA!r}: fit it "
        "again with python -m tvm_droplet_ms.bench.fit_draft --out"
    )


@cache
def shipped_draft() -> Trees:
    """The draft that comes with the package, read once per process."""
    return read_draft(SHIPPED)

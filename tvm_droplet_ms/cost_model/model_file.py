# SPDX-License-Identifier: Apache-2.0
"""The file of a model: a ZIP archive of ``header.json`` and the model itself. Imports no TVM."""

import json
import os
import zipfile
from collections.abc import Mapping
from typing import Any, Literal

from ..session.archive import READ_ERRORS, replacing
from .boosted_trees import OBJECTIVES

FORMAT = "tvm-droplet-ms cost model"

ModelKind = Literal["trees", "treegru", "pacm", "pacm-stores"]

MEMBERS: dict[ModelKind, str] = {
    "trees": "trees.ubj",
    "treegru": "treegru.npz",
    "pacm": "pacm.npz",
    "pacm-stores": "pacm.npz",
}
"""The file of the model within the archive, by the kind of the model."""

_FIELDS: dict[str, type | tuple[type, ...]] = {
    "schema": str,
    "target": dict,
    "tvm": str,
    "intercept": (int, float),
    "slope": (int, float),
    "summary": dict,
}
"""Fields of the header and their types; "format", "model" and "objective" are checked by value."""


class ModelFileError(ValueError):
    """A file has no model that this version can use; the message says why and what to do."""


def damaged(path: str | os.PathLike[str], error: Exception) -> ModelFileError:
    """Make the error for an unreadable file, with another error as its reason."""
    reason = str(error) or type(error).__name__
    return ModelFileError(
        f"{os.fspath(path)} is no cost model: {reason}; make one with droplet-ms pretrain"
    )


def write_model(
    path: str | os.PathLike[str], kind: ModelKind, header: Mapping[str, Any], content: bytes
) -> None:
    """Write a model's file, which is complete or absent.

    ``header``: the fields of the header except "format" and "model", as JSON.
    """
    full = {"format": FORMAT, "model": kind} | dict(header)
    with replacing(path) as partial, zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps(full, indent=1))
        archive.writestr(MEMBERS[kind], content)


def read_model(path: str | os.PathLike[str]) -> tuple[dict[str, Any], bytes]:
    """Read a file that ``write_model`` wrote.

    Returns ``header``, with checked fields, and ``content``, the model. A file from before networks
    does not name the kind of its model, which is then "trees". Raises ``ModelFileError`` if the
    file cannot be read, is damaged or is not a model.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            header = _check(json.loads(archive.read("header.json")))
            return header, archive.read(MEMBERS[header["model"]])
    except READ_ERRORS as error:
        raise damaged(path, error) from error


def _check(header: Any) -> dict[str, Any]:
    """Check a header and add a missing "model"; ``ValueError`` if the header is invalid."""
    if not isinstance(header, dict):
        raise ValueError(f"its header is of type {type(header).__name__}, expected a JSON object")
    full: dict[str, Any] = {"model": "trees"} | header
    choices = {"format": (FORMAT,), "model": tuple(MEMBERS), "objective": OBJECTIVES}
    for name, values in choices.items():
        if full.get(name) not in values:
            raise ValueError(f"its {name} is {full.get(name)!r}, expected {' or '.join(values)}")
    for name, expected in _FIELDS.items():
        if not isinstance(full.get(name), expected):
            raise ValueError(f"its {name} is {full.get(name)!r}, expected another type")
    workloads = full["summary"].get("workloads")
    if not isinstance(workloads, list) or not all(isinstance(entry, dict) for entry in workloads):
        raise ValueError(f"its summary's workloads are {workloads!r}, expected a list of objects")
    return full

# SPDX-License-Identifier: Apache-2.0
"""The ONNX files that packages of PyPI and npm ship, and what each needs to be tuned."""

import csv
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Entry:
    """An ONNX file of a package: a row of ``catalogue.csv``.

    - ``name``: short name, for tables.
    - ``package``, ``version``: the package of PyPI, or of npm after ``npm:``.
    - ``path``: the file in the wheel or source archive.
    - ``sha256``: the first digits of the file's digest.
    - ``shapes``: extents of the inputs that the file leaves open.
    - ``constants``: inputs that choose a branch of the graph: bound to this value.
    - ``values``: inputs that have this value in every element.
    - ``below``: inputs of identifiers: drawn from the integers below.
    - ``group``: which gathering of files it is of; files of the second came later.
    """

    name: str
    package: str
    version: str
    path: str
    sha256: str
    shapes: dict[str, tuple[int, ...]]
    constants: dict[str, float]
    values: dict[str, float]
    below: dict[str, int]
    group: str


def _pairs(cell: str) -> dict[str, str]:
    """What a cell says of each input: ``name=value``, between spaces."""
    return dict(pair.rsplit("=", 1) for pair in cell.split())


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


def _entry(row: dict[str, str]) -> Entry:
    shapes, constants, values, below = (
        _pairs(row.pop(column)) for column in ("shapes", "constants", "values", "below")
    )
    return Entry(
        **row,
        shapes={name: tuple(map(int, shape.split("x"))) for name, shape in shapes.items()},
        constants={name: _number(value) for name, value in constants.items()},
        values={name: _number(value) for name, value in values.items()},
        below={name: int(value) for name, value in below.items()},
    )


with Path(__file__).with_suffix(".csv").open(newline="") as file:
    ENTRIES = [_entry(row) for row in csv.DictReader(file)]

# SPDX-License-Identifier: Apache-2.0
"""A measured space as data, and the spaces of the package. Imports no TVM."""

import gzip
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from ..search_strategy.published.neighborhood import Point
from ..session.archive import replacing

FORMAT = "tvm-droplet-ms space"
VERSION = 1


_AS_IT_IS = ("name", "description", "definition", "closed", "target", "machine", "versions", "date")
"""Fields of a space that its file stores unchanged."""


class SpaceError(Exception):
    """A file is not a space, or its content is inconsistent."""


@dataclass(frozen=True)
class DecisionLayout:
    """One decision of a sketch, and its limits.

    - ``kind``: the kind of its instruction: "SamplePerfectTile", "SampleCategorical",
      "SampleComputeLocation", or "Annotate" for a parallel extent.
    - ``start``: index of its first integer in a point.
    - ``length``: number of its integers: the number of factors of a tile, otherwise 1.
    - ``max_innermost_factor``: the limit of a tile's innermost factor; -1 for no limit.
    - ``candidates``: candidates of a ``SampleCategorical``; empty for other kinds.
    """

    kind: str
    start: int
    length: int
    max_innermost_factor: int = -1
    candidates: tuple[float, ...] = ()


SketchLayout = tuple[DecisionLayout, ...]
"""The decisions of one sketch, in the order of its trace."""


@dataclass(frozen=True)
class MeasuredPoint:
    """Realized decisions, and the module that they make.

    ``sketch``: index of the sketch in the design space. ``decisions``: the concatenated decisions,
    as ``Sketch.read`` returns them. ``module``: the index of its module in the space; None for a
    point without a module, which is a "constraint" failure.
    """

    sketch: int
    decisions: Point
    module: int | None


@dataclass(frozen=True)
class MeasuredModule:
    """A distinct scheduled module and its measurements.

    - ``structural_hash``: the ``tvm_ffi.structural_hash`` of the scheduled module.
    - ``secs``: the time of one call in seconds, one value per pass over the space; empty for a
      failure.
    - ``build_secs``: duration of building and exporting the module, in seconds.
    - ``run_secs``: duration of one measurement in seconds: loading, filling the arguments, timing.
    - ``failure``: the kind of failure: "constraint" (a primitive or a postprocessor rejected it),
      "compile", "runtime", "timeout" or "wrong result"; None if the module has a time.
    """

    structural_hash: int
    secs: tuple[float, ...]
    build_secs: float
    run_secs: float
    failure: str | None = None

    @cached_property
    def time(self) -> float:
        """The best estimate: the median over the passes, in seconds; infinity for a failure."""
        return median(self.secs) if self.secs else math.inf


def _rows(table: Mapping[str, Any], *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[column] for column in columns), strict=True)


@dataclass(frozen=True)
class Space:
    """A workload's design space with the time of every module in it.

    - ``description``: the workload and the schedule space, in one line.
    - ``definition``: the workload's name for ``definitions.find_definition``.
    - ``machine``: the machine that measured it: ``cpu``, ``cpus``, ``threads``.
    - ``versions``: versions of the packages that made it.
    - ``date``: date of the measurement, in ISO format.
    - ``points``: all points, including points with the same module (aliases) or without a module.
    - ``closed``: True for a space with every module that MetaSchedule can reach; False for a
      sample.
    - ``origins``: origin of each module of a sample: "random" for TVM's own sampling, "near" for a
      change to one of the best points, or the name of the search that proposed it. Empty if
      unknown.
    """

    name: str
    description: str
    definition: str
    target: Mapping[str, Any]
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    date: str
    sketches: tuple[SketchLayout, ...]
    points: tuple[MeasuredPoint, ...]
    modules: tuple[MeasuredModule, ...]
    closed: bool = True
    origins: tuple[str, ...] = ()

    @cached_property
    def times(self) -> list[float]:
        """The best estimate of each module's time in seconds; infinity for failures."""
        return [module.time for module in self.modules]

    @cached_property
    def optimum(self) -> float:
        """The minimum time, in seconds."""
        return min(self.times)

    @cached_property
    def index(self) -> dict[int, int]:
        """The index of each module by its structural hash."""
        return {module.structural_hash: i for i, module in enumerate(self.modules)}

    @cached_property
    def first_points(self) -> dict[int, MeasuredPoint]:
        """The first point of each module, by the module's index."""
        return {point.module: point for point in self.points[::-1] if point.module is not None}

    def save(self, path: Path) -> None:
        """Write the space as JSON, compressed if the name ends in ``.gz``."""
        # mtime=0 makes the files of equal spaces identical.
        text = json.dumps(self.as_json(), separators=(",", ":")) + "\n"
        data = gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode()
        with replacing(path) as partial:
            partial.write_bytes(data)

    @staticmethod
    def load(path: Path) -> "Space":
        """Read a space.

        Raises ``SpaceError`` if the file cannot be read, is not a space, or has another version.
        """
        try:
            data = path.read_bytes()
            content = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
            if content.get("format") != FORMAT or content.get("version") != VERSION:
                raise SpaceError(
                    f"{path}: format {content.get('format')!r}, "
                    f"version {content.get('version')!r}, expected {FORMAT!r}, version {VERSION}; "
                    "build it again with `droplet-ms space build`"
                )
            return Space.from_json(content)
        except (OSError, EOFError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise SpaceError(f"{path} cannot be read as a space: {error!r}") from error

    def as_json(self) -> dict[str, Any]:
        """The content of the space's file."""
        return {
            "format": FORMAT,
            "version": VERSION,
            **{name: vars(self)[name] for name in _AS_IT_IS},
            "sketches": [[asdict(decision) for decision in sketch] for sketch in self.sketches],
            "points": {
                "sketch": [point.sketch for point in self.points],
                "decisions": [list(point.decisions) for point in self.points],
                "module": [point.module for point in self.points],
            },
            "modules": {
                "structural_hash": [f"{m.structural_hash:016x}" for m in self.modules],
                "nanosecs": [[round(secs * 1e9) for secs in m.secs] for m in self.modules],
                "build_millisecs": [round(m.build_secs * 1e3) for m in self.modules],
                "run_millisecs": [round(m.run_secs * 1e3) for m in self.modules],
                "failure": {i: m.failure for i, m in enumerate(self.modules) if m.failure},
            },
            **({"origins": list(self.origins)} if self.origins else {}),
        }

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> "Space":
        """Read the content of a file. Raises ``KeyError`` if a field is missing."""
        points, modules = content["points"], content["modules"]
        failure = {int(i): str(kind) for i, kind in modules["failure"].items()}
        names = ("structural_hash", "nanosecs", "build_millisecs", "run_millisecs")
        return Space(
            **{name: content[name] for name in _AS_IT_IS},
            origins=tuple(content.get("origins", ())),
            sketches=tuple(
                tuple(
                    DecisionLayout(**{**decision, "candidates": tuple(decision["candidates"])})
                    for decision in sketch
                )
                for sketch in content["sketches"]
            ),
            points=tuple(
                MeasuredPoint(sketch, tuple(decisions), module)
                for sketch, decisions, module in _rows(points, "sketch", "decisions", "module")
            ),
            modules=tuple(
                MeasuredModule(
                    int(name, 16),
                    tuple(nanosecs * 1e-9 for nanosecs in times),
                    build * 1e-3,
                    run * 1e-3,
                    failure.get(i),
                )
                for i, (name, times, build, run) in enumerate(_rows(modules, *names))
            ),
        )


DIRECTORY, SAMPLES = (Path(__file__).parent / name for name in ("spaces", "samples"))

HELD_OUT = frozenset(
    {"conv1d", "conv2d_bn_relu", "conv2d_dilated", "dense_flat", "depthwise_stride2"}
)
"""Held-out spaces. No setting of a strategy was chosen on them: they show whether settings chosen
on the other spaces generalize."""


def shipped_spaces() -> dict[str, Path]:
    """Files of the package's spaces by name, in alphabetical order."""
    return _files(DIRECTORY)


def shipped_samples() -> dict[str, Path]:
    """Files of the package's samples by name: a cost model learns from them, none is searched."""
    return _files(SAMPLES)


def shipped_training_files() -> list[Path]:
    """All files of the package from which a cost model can learn."""
    return [*shipped_spaces().values(), *shipped_samples().values()]


def find_space(text: str) -> Path:
    """Find the file of a space or a sample by its name in the package or its path."""
    return (shipped_samples() | shipped_spaces()).get(text, Path(text))


def _files(directory: Path) -> dict[str, Path]:
    files = [*directory.glob("*.json"), *directory.glob("*.json.gz")]
    return dict(sorted((path.name.partition(".json")[0], path) for path in files))

# SPDX-License-Identifier: Apache-2.0
"""A sample of a design space that is too large to enumerate, measured in rounds."""

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from tvm.s_tir.meta_schedule import TuneContext
from tvm.target import Target

from ...cost_model.boosted_trees import Trees
from ...cost_model.features.program_features import ProgramFeatures
from ...cost_model.throughput import relative_throughput
from ...design_space.factorizations import factorizations
from ...search_strategy.published.candidates import Candidate
from ...search_strategy.published.decisions import SpacePoint
from ...search_strategy.published.neighborhood import Point
from ..definition import Definition
from ..design_space import DesignSpace
from ..space import DecisionLayout
from ..work_directory import CollectionError, read_lines
from .collection import Collection, Progress

MAX_CHANGES = 4
"""Maximum number of decision changes that make a nearby point."""

DRAWN_PER_CHOSEN = 4
"""Number of nearby points drawn for each point that a round measures."""

BEST_POINTS = 64
"""Number of best points whose neighborhoods a round samples."""

AT_RANDOM = 0.25
"""Share of a round that is chosen at random, not by the predictions."""

MAX_DRAWS = 50
"""Maximum number of draws per requested point. It ends the sampling of an exhausted space."""

TREES = 100
"""Number of trees of the model that chooses a round."""

Drawn = tuple[SpacePoint, Candidate]
"""A point, and the candidate that TVM makes from it."""


class Sampler:
    """Draws points of a design space."""

    def __init__(self, context: TuneContext, seed: int) -> None:
        self.space = DesignSpace(context, seed)
        self.layouts = self.space.layouts()
        self._generator = random.Random(seed)

    def random(self) -> Drawn | None:
        """Draw a point by TVM's own sampling; None if it is rejected."""
        sketch = self._generator.randrange(len(self.layouts))
        return self._drawn(self.space.draw(sketch))

    def near(self, places: Sequence[SpacePoint]) -> Drawn | None:
        """Make one to four changes to a random point in `places`; None if the result is invalid."""
        sketch, point = self._generator.choice(places)
        for _ in range(self._generator.randint(1, MAX_CHANGES)):
            decision = self._generator.choice(self.layouts[sketch])
            end = decision.start + decision.length
            value = self._value(decision, point[decision.start : end])
            point = (*point[: decision.start], *value, *point[end:])
        return self._drawn(self.space.realize((sketch, point)))

    def _drawn(self, candidate: Candidate | None) -> Drawn | None:
        place = None if candidate is None else self.space.places.find(candidate.trace)
        return None if candidate is None or place is None else (place, candidate)

    def _value(self, decision: DecisionLayout, present: Point) -> Point:
        if decision.kind == "SamplePerfectTile":
            extent, limit = prod(present), decision.max_innermost_factor
            tiles = [tuple(t) for t in factorizations(extent, decision.length, limit).tolist()]
            # With probability 1/2, draw a tile that differs in exactly two positions.
            close = [t for t in tiles if sum(a != b for a, b in zip(t, present, strict=True)) == 2]
            return self._generator.choice(
                close if close and self._generator.random() < 0.5 else tiles
            )
        if decision.kind == "SampleCategorical":
            return (self._generator.randrange(len(decision.candidates)),)
        if decision.kind == "SampleComputeLocation":
            # TVM replaces an illegal location by the next legal one.
            return (max(-2, present[0] + self._generator.choice((-2, -1, 1, 2))),)
        return (2 ** self._generator.randint(0, 6),)


@dataclass(frozen=True)
class SampledModule:
    """A module of the sample."""

    name: int
    place: SpacePoint
    origin: str


class SampleCollection:
    """A sample and its measurements, in a directory from which a collection can be resumed.

    Raises ``CollectionError`` if the directory holds other files, or measurements of another
    workload or target.
    """

    def __init__(
        self, directory: Path, definition: Definition, target: Target, *, seed: int = 0
    ) -> None:
        self.measurements = Collection(directory, definition.mod, target, seed=seed)
        self._context = definition.context(target, "replay-trace")
        self.sampler = Sampler(self._context, seed)
        self.modules: dict[int, SampledModule] = {}
        self._features: dict[int, np.ndarray] = {}
        self._seed = seed
        self._path = directory / "sample.jsonl"
        for entry in read_lines(self._path):
            sketch, decisions = entry["place"]
            module = SampledModule(entry["name"], (sketch, tuple(decisions)), entry["origin"])
            self.modules[module.name] = module

    def add_random(self, count: int, progress: Progress) -> None:
        """Draw points by TVM's own sampling until there are `count`, and measure each once.

        A small space may yield fewer points.
        """
        for _ in range(MAX_DRAWS * count):
            if self._count("random") >= count:
                break
            drawn = self.sampler.random()
            if drawn is not None and drawn[1].module not in self.modules:
                self._add(drawn, "random")
        self.measure([0], progress)

    def add_near(self, count: int, per_round: int, progress: Progress) -> None:
        """Measure nearby points in rounds, until there are `count` or no more are found.

        A round draws points near the best measured points. It measures the drawn points with the
        fastest predictions, balanced over the sketches, and some random ones. The predictions come
        from a model of the sample so far.
        """
        while self._count("near") < count:
            wanted = min(per_round, count - self._count("near"))
            found = self._choose_near(wanted)
            if not found:
                return
            for drawn in found:
                self._add(drawn, "near")
            self.measure([0], progress)

    def measure(self, passes: Sequence[int], progress: Progress) -> None:
        """Build all modules, and time each once per pass."""
        makers = {
            name: partial(self.sampler.space.module, module.place)
            for name, module in self.modules.items()
        }
        self.measurements.build(makers, progress)
        self.measurements.measure(list(self.modules), passes, progress)

    def _add(self, drawn: Drawn, origin: str) -> None:
        place, candidate = drawn
        entry = {"name": candidate.module, "place": place, "origin": origin}
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")
        self.modules[candidate.module] = SampledModule(candidate.module, place, origin)

    def _count(self, origin: str) -> int:
        return sum(module.origin == origin for module in self.modules.values())

    def _choose_near(self, count: int) -> list[Drawn]:
        measured = {name: self.measurements.measured(name).time for name in self.modules}
        times = {name: time for name, time in measured.items() if math.isfinite(time)}
        if not times:
            raise CollectionError(self._no_time())
        best = of_each_sketch(list(times), times, lambda name: self.modules[name].place[0])
        nearby = [self.modules[name].place for name in best[:BEST_POINTS]]
        drawn: dict[int, Drawn] = {}
        for _ in range(MAX_DRAWS * count):
            if len(drawn) >= DRAWN_PER_CHOSEN * count:
                break
            found = self.sampler.near(nearby)
            if found is not None and found[1].module not in self.modules:
                drawn[found[1].module] = found
        if not drawn:
            return []
        predicted = self._predict(times, drawn)
        in_order = of_each_sketch(list(drawn), predicted, lambda name: drawn[name][0][0])
        guided = in_order[: round(count * (1 - AT_RANDOM))]
        rest = in_order[len(guided) :]
        random.Random(f"{self._seed} {len(self.modules)}").shuffle(rest)
        return [drawn[name] for name in guided + rest[: count - len(guided)]]

    def _no_time(self) -> str:
        failures = Counter(self.measurements.failures.values()).most_common()
        listed = ", ".join(f"{number} of {kind}" for kind, number in failures)
        return (
            f"no schedule has a time, so that none is near the best; failed: {listed}; the "
            "messages are in log.jsonl of the work directory"
        )

    def _predict(self, times: Mapping[int, float], drawn: Mapping[int, Drawn]) -> dict[int, float]:
        """Predict a score for each drawn module; a lower score is faster."""
        unknown = [name for name in times if name not in self._features]
        realized = {name: self.sampler.space.realize(self.modules[name].place) for name in unknown}
        self._extract(realized)
        self._extract({name: candidate for name, (_, candidate) in drawn.items()})
        known = [name for name in times if name in self._features]
        throughput = relative_throughput(np.array([times[name] for name in known]))
        model = Trees.fit(
            np.stack([self._features[name] for name in known]),
            throughput,
            np.zeros(len(known), dtype=np.int64),
            objective="regression",
            rounds=TREES,
            seed=self._seed,
        )
        scores = model.predict(np.stack([self._features[name] for name in drawn]))
        return {name: -float(score) for name, score in zip(drawn, scores, strict=True)}

    def _extract(self, candidates: Mapping[int, Candidate | None]) -> None:
        made = {name: one.measure_candidate() for name, one in candidates.items() if one}
        if made:
            rows = ProgramFeatures().extract(self._context, list(made.values()))
            self._features.update(zip(made, rows, strict=True))


def of_each_sketch(
    names: Sequence[int], times: Mapping[int, float], sketch_of: Callable[[int], int]
) -> list[int]:
    """Order modules: the fastest of each sketch, then the second of each, and so on.

    Each sketch has its own optimum, and a search may consider any of them the best.
    """
    places: Counter[int] = Counter()
    ranks = {}
    for name in sorted(names, key=times.__getitem__):
        ranks[name] = (places[sketch_of(name)], times[name])
        places[sketch_of(name)] += 1
    return sorted(names, key=ranks.__getitem__)

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
"""Tables of spaces and their landscapes: data in, text out."""

from collections.abc import Sequence

from ..report import align
from .landscape import DRAWS, Landscape
from .space import Space

_HEADER = (
    "space",
    "points",
    "modules",
    "failed",
    "optimum us",
    "best 1%",
    "median",
    "noise",
    "unsteady",
    "local minima",
    "beyond noise",
    "median minimum",
    "within 5%",
    "descents to 5%",
)


def format_landscapes(spaces: Sequence[tuple[Space, Landscape]]) -> str:
    """Format tables of spaces, their size and their landscape.

    Parameters
    ----------
    spaces : Sequence[tuple[Space, Landscape]]
        The spaces with their figures.

    Returns
    -------
    text : str
        Two tables in Markdown, a legend, and the place and time of each measurement.
    """
    parts = [
        align([_HEADER, *(_cells(space, found) for space, found in spaces)]),
        _EXPLANATION,
        align([_draws_header(), *(_draws(space, found) for space, found in spaces)]),
        _DRAWS_EXPLANATION,
        *(_describe(space) for space, _ in spaces),
    ]
    return "\n\n".join(parts)


_EXPLANATION = """\
Times are multiples of the optimum. noise: the median over the modules of the interquartile range
over the passes. unsteady: the share of modules whose slowest pass took more than twice the fastest.
A local minimum is a module without a faster one among those that the smallest step
of one decision leads to; beyond noise: those left where a step has to gain more than the noise of
two timings. median minimum and within 5%: how far from the optimum they lie. descents to 5%: the
share of all modules from which the steepest descent ends within 5% of the optimum."""

_DRAWS_EXPLANATION = """\
found: the probability that the best of so many modules drawn at random lies within 5% of the
optimum; descended: that the steepest descent from it ends there. The difference is what a descent
is worth."""


def _cells(space: Space, found: Landscape) -> tuple[str, ...]:
    minima = found.minima
    return (
        space.name,
        str(found.points),
        str(found.modules),
        f"{found.failed / found.points:.1%}",
        f"{found.optimum * 1e6:.1f}",
        f"{found.best_percent:.2f}",
        f"{found.middle:.2f}",
        f"{found.noise:.1%}",
        f"{found.unsteady:.1%}",
        str(found.local_minima),
        str(found.deep_minima),
        f"{minima[len(minima) // 2]:.2f}",
        f"{sum(minimum <= 1.05 for minimum in minima) / len(minima):.0%}",
        f"{found.descents_to_5_percent:.0%}",
    )


def _draws_header() -> tuple[str, ...]:
    return ("space", *(f"{what}, best of {n}" for n in DRAWS for what in ("found", "descended")))


def _draws(space: Space, found: Landscape) -> tuple[str, ...]:
    cells = [space.name]
    for draws in DRAWS:
        cells += [
            f"{found.found_by_best_of[draws]:.0%}",
            f"{found.descent_from_best_of[draws]:.0%}",
        ]
    return tuple(cells)


def _describe(space: Space) -> str:
    machine = ", ".join(f"{name} {value}" for name, value in space.machine.items())
    versions = ", ".join(f"{name} {value}" for name, value in space.versions.items())
    passes = max((len(module.secs) for module in space.modules), default=0)
    return (
        f"{space.name}: {space.description}. {passes} passes on {space.date}; target "
        f"{dict(space.target)}; {machine}; {versions}."
    )

# SPDX-License-Identifier: Apache-2.0
"""Compares whole graphs with the input: first outputs, then times. The input wins a tie."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

import numpy as np

from tvm_droplet_ms.frontends.imported import Arrays
from tvm_droplet_ms.tuning.check.output_check import OutputCheck

from .pricing.deciding_kernels import LEAST_GAIN

INPUT = "the input"
"""The name of the input graph."""

Runnable = Callable[[Sequence[np.ndarray]], Arrays]
"""A compiled graph, such as ``tuning.compile.compiled_model.CompiledModel``."""

_Graph = TypeVar("_Graph", bound=Runnable)

Clock = Callable[[Mapping[str, _Graph], Sequence[np.ndarray]], dict[str, list[float]]]
"""Times compiled graphs in turns on the same inputs. Returns the seconds of each round, by name.
``graph_timing.time_graphs`` is such a function."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    - ``winner``: the name of the graph to take. It is ``INPUT`` if no other is reliably faster.
    - ``secs``: the seconds of each graph in each round, without refused graphs.
    - ``deviations``: the deviation of each graph's outputs from the reference; see
      ``OutputCheck.deviation``.
    - ``reason``: the reason in words.
    """

    winner: str
    secs: dict[str, list[float]]
    deviations: dict[str, float]
    reason: str

    def median_secs(self, name: str) -> float:
        """The median seconds of a graph; 0 for a refused graph."""
        return median(self.secs[name]) if name in self.secs else 0.0


def why_incomparable(check: OutputCheck) -> str:
    """Return why a check's outputs cannot verify a graph; empty if they can."""
    if not all(np.isfinite(array).all() for arrays in check.expected for array in arrays):
        # Non-finite values count as equal to the non-finite values of any graph.
        return f"outputs of {check.reference.name} are not finite: nothing can be compared there"
    if check.unchecked:
        numbers = ", ".join(map(str, check.unchecked))
        return f"the outputs {numbers} are 0 for all inputs: nothing can be compared there"
    return ""


def verify(graphs: Mapping[str, _Graph], check: OutputCheck, clock: Clock[_Graph]) -> Verdict:
    """Compare compiled graphs.

    ``graphs``: the graphs by name; ``INPUT`` is the input graph. ``check``: the inputs and the
    expected outputs. ``clock``: times the graphs whose outputs are correct.

    Returns the fastest correct graph that is faster than the input by ``LEAST_GAIN`` in three of
    four rounds, and again when both are timed anew. The second timing matters because the load of a
    shared machine can favor one program for a while. Otherwise, the input wins. The input also wins
    if outputs are not finite or are 0 for all inputs, because such outputs verify nothing.
    """
    deviations = {name: check.deviation(graph) for name, graph in graphs.items()}
    right = {name: graphs[name] for name, off in deviations.items() if off <= check.tolerance}
    refused = [name for name in graphs if name not in right]
    if INPUT not in right:
        return Verdict(
            INPUT,
            {},
            deviations,
            f"the input as it is compiled differs from {check.reference.name} by "
            f"{deviations[INPUT]:.1e} of the scale of its row: nothing can be compared with it",
        )
    if reason := why_incomparable(check):
        return Verdict(INPUT, {}, deviations, reason)
    secs = clock(right, check.inputs[0])
    winner, reason = _fastest(
        secs, lambda names: clock({name: right[name] for name in names}, check.inputs[0])
    )
    if refused:
        reason += "; refused for other outputs: " + ", ".join(
            f"{name} ({deviations[name]:.1e} of the scale of its row)" for name in refused
        )
    return Verdict(winner, secs, deviations, reason)


def _fastest(
    secs: Mapping[str, Sequence[float]],
    time_again: Callable[[Sequence[str]], Mapping[str, Sequence[float]]],
) -> tuple[str, str]:
    before = secs[INPUT]
    others = sorted((name for name in secs if name != INPUT), key=lambda name: median(secs[name]))
    if not others:
        return INPUT, "there is no other graph to compare"
    ratios = {
        name: median(b / a for a, b in zip(secs[name], before, strict=True)) for name in others
    }
    faster = [name for name in others if _is_faster(secs[name], before)]
    for name in faster:
        again = time_again([INPUT, name])
        if _is_faster(again[name], again[INPUT]):
            return name, f"{name} is {ratios[name]:.2f} times as fast as the input"
    best = faster[0] if faster else others[0]
    why = ", but not when both were timed again: a tie" if faster else ": a tie, or slower"
    return INPUT, f"{best} is {ratios[best]:.2f} times as fast as the input{why}"


def _is_faster(secs: Sequence[float], before: Sequence[float]) -> bool:
    ratios = [a / b for a, b in zip(secs, before, strict=True)]
    return float(np.quantile(ratios, 0.75)) < 1 - LEAST_GAIN

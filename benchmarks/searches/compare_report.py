# SPDX-License-Identifier: Apache-2.0
"""The tables of ``searches``: results in, text out. Imports no TVM."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tvm_droplet_ms.display.tables import align

from .comparison import LayerResults, Run, interval, mean_ratio, ratios_of, worst_layer
from .layers import ALL_LAYERS
from .methods import METHODS

BOUNDS = (0.9, 0.8)
"""Ratio bounds below which single runs count as far behind the baseline."""

LEGEND = """\
- ratio: the latency of the baseline over that of the method with the same seed, and as many trials
  where the heading gives none; above 1 the method is faster. The geometric mean over layers and
  seeds, with its 95% bootstrap interval (layers are drawn, then seeds of each), and the worst
  layer's geometric mean.
- latency: the winner of the first trials by its record, rebuilt and timed together with all other
  winners of the layer, in alternation and on new buffers in each round: the median.
- time over record: the re-measured latency of the last winner over the time of its record, the
  median over runs and the largest: above 1 the record was lucky.
- trials to the baseline: the first trial whose record is as fast as the baseline's last winner of
  the same seed, the median over runs; a record is one timing, which flatters.
- seconds: of tuning, without the start of Python and TVM; proposing is what is spent neither
  building, running, training the cost model nor writing."""


@dataclass(frozen=True)
class Report:
    """The tables of a comparison."""

    layers: Mapping[str, LayerResults]
    baseline: str
    methods: Sequence[str]
    seeds: Sequence[int]
    checkpoints: Sequence[int]

    def text(self) -> str:
        """All tables, in Markdown."""
        parts = [self.ratios(), "### Single runs", self._single_runs(), "### Cost", self._cost()]
        return "\n\n".join([*parts, LEGEND])

    def ratios(self) -> str:
        """The ratios over all layers, over the layers that the shipped cost model has not seen, and
        layer by layer."""
        parts = ["### All layers", self._ratio_table(self.layers)]
        for end in self.checkpoints[-1:]:
            parts.append(f"### All layers, beside `{self.baseline}` at {end}")
            parts.append(self._ratio_table(self.layers, end))
        seen = [name for name in self.layers if ALL_LAYERS[name].training_space]
        unseen = {name: found for name, found in self.layers.items() if name not in seen}
        has_prior = any("prior" in METHODS[method].takes for method in self.methods)
        if seen and unseen and has_prior:
            parts.append(
                f"### Without {', '.join(seen)}, which the shipped cost model learned from"
            )
            parts.append(self._ratio_table(unseen))
        return "\n\n".join([*parts, "### Layer by layer", self._layer_table()])

    def seconds(self) -> str:
        """A table of the total tuning seconds of each method."""
        lines = [["method", "runs", "seconds of tuning"]]
        for method in self.methods:
            secs = [run.wall_secs for _, _, run in self._runs(method)]
            lines.append([method, str(len(secs)), f"{sum(secs):.0f}"])
        return align(lines)

    def _runs(self, method: str) -> Iterator[tuple[LayerResults, int, Run]]:
        for results in self.layers.values():
            for seed in self.seeds:
                if (method, seed) in results.runs:
                    yield results, seed, results.runs[method, seed]

    def _at(self) -> list[str]:
        return [f"at {checkpoint}" for checkpoint in self.checkpoints]

    def _ratios(
        self, layers: Mapping[str, LayerResults], method: str, beside: int | None = None
    ) -> Iterator[dict[str, list[float]]]:
        """The ratios of each layer at each checkpoint."""
        for checkpoint in self.checkpoints:
            yield ratios_of(layers, self.baseline, method, self.seeds, checkpoint, beside)

    def _ratio_table(self, layers: Mapping[str, LayerResults], beside: int | None = None) -> str:
        """A table of ratios. ``beside``: the baseline's checkpoint; None for the column's own."""
        lines = [["ratio", *self._at()]]
        for method in self.methods:
            line = [method]
            for ratios in self._ratios(layers, method, beside):
                if not ratios:
                    line.append("-")
                elif method == self.baseline and beside is None:
                    line.append("1")
                else:
                    low, high = interval(ratios)
                    name, worst = worst_layer(ratios)
                    mean = mean_ratio(ratios)
                    line.append(f"{mean:.3f} ({low:.3f} to {high:.3f}), {name} {worst:.2f}")
            lines.append(line)
        return align(lines)

    def _layer_table(self) -> str:
        lines = [["layer", "method", *self._at()]]
        for name in self.layers:
            for method in self.methods:
                if method != self.baseline:
                    found = self._ratios(self.layers, method)
                    cells = [spread(ratios[name]) if name in ratios else "-" for ratios in found]
                    lines.append([ALL_LAYERS[name].description, method, *cells])
        return align(lines)

    def _single_runs(self) -> str:
        """A table of runs far behind the baseline, and of re-measured times over records."""
        bounds = " and ".join(f"{bound:.2f}" for bound in BOUNDS)
        lines = [[f"runs below {bounds}", *self._at(), "time over record"]]
        for method in self.methods:
            line = [method]
            for ratios in self._ratios(self.layers, method):
                known = [ratio for seeds in ratios.values() for ratio in seeds]
                below = [sum(ratio < bound for ratio in known) for bound in BOUNDS]
                line.append(f"{', '.join(map(str, below))} of {len(known)}" if known else "-")
            flattery = [
                found
                for results, seed, _ in self._runs(method)
                if (found := results.flattery(method, seed, self.checkpoints[-1])) is not None
            ]
            shown = f"{statistics.median(flattery):.3f}, {max(flattery):.2f}" if flattery else "-"
            lines.append([*line, shown])
        return align(lines)

    def _cost(self) -> str:
        header = ["method", "runs", "failed trials", "trials to the baseline", "reached it"]
        lines = [[*header, "seconds", "of them proposing"]]
        for method in self.methods:
            found = list(self._runs(method))
            if not found:
                continue
            runs = [run for _, _, run in found]
            last = self.checkpoints[-1]
            trials = [
                results.trials_to_baseline(self.baseline, method, seed, last)
                for results, seed, _ in found
            ]
            middle = statistics.median_high(math.inf if n is None else n for n in trials)
            lines.append(
                [
                    method,
                    str(len(runs)),
                    str(sum(trial.secs is None for run in runs for trial in run.trials)),
                    "never" if middle == math.inf else f"{middle:.0f}",
                    f"{sum(n is not None for n in trials)} of {len(runs)}",
                    f"{sum(run.wall_secs for run in runs):.0f}",
                    f"{sum(run.proposing_secs for run in runs):.0f}",
                ]
            )
        return align(lines)


def spread(ratios: Sequence[float]) -> str:
    """The geometric mean, the minimum and the maximum as text."""
    return f"{statistics.geometric_mean(ratios):.2f} [{min(ratios):.2f}-{max(ratios):.2f}]"

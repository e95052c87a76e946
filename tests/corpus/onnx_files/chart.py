# SPDX-License-Identifier: Apache-2.0
"""The speeds of a run of the corpus, as bars."""

from pathlib import Path
from typing import Any


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the speed of each file over ONNX Runtime's, the fastest first, as an SVG file."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.fonttype"] = "none"
    rcParams["svg.hashsalt"] = "speeds"  # Otherwise two runs draw different files.
    speeds = sorted((row["speed"], row["name"]) for row in rows if "speed" in row)
    figure = Figure(figsize=(7, 0.16 * len(speeds) + 0.6), layout="constrained")
    axes = figure.subplots()
    colors = ["#2a7ab9" if speed >= 1 else "#b9b9b9" for speed, _ in speeds]
    axes.barh(range(len(speeds)), [speed for speed, _ in speeds], color=colors, height=0.7)
    axes.set_yticks(range(len(speeds)), [name for _, name in speeds], fontsize=6)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xticks([0.25, 0.5, 1, 2, 4], ["1/4", "1/2", "1", "2", "4"], fontsize=7)
    axes.set_xlabel("speed over ONNX Runtime, one thread", fontsize=7)
    axes.set_ylim(-0.7, len(speeds) - 0.3)
    figure.savefig(path, format="svg", metadata={"Date": None})

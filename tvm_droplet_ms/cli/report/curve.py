# SPDX-License-Identifier: Apache-2.0
"""Plots of times and of a roofline as SVG, small enough for a page with hundreds of them."""

import io
import math
import re
from collections.abc import Callable, Sequence
from html import escape
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from .history import ReportError, TaskHistory

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEAST_DISTANCE = 0.1
"""The minimum distance of two tick labels on the time axis, as a share of its length."""

_COLORS = {
    "#000000": "currentColor",
    "#b3541e": "var(--best)",
    "#9aa5b1": "var(--trial)",
    "#616e7c": "var(--quiet)",
    "#3d8b4f": "var(--gained)",
}
"""Matplotlib's colors, and those of the page, which is light or dark."""

_WITHOUT = {"Date": None, "Creator": None, "Format": None, "Type": None}


def curve(task: TaskHistory, descends_after: Sequence[int] = ()) -> str:
    """Plot a task's times and the best so far as SVG, with a line at the start of each descent.

    ``descends_after``: the numbers of trials after which a descent began. Returns the ``svg``
    element. Raises ``ReportError`` if Matplotlib is missing.
    """
    _need_matplotlib()
    from matplotlib.ticker import MaxNLocator

    def draw(axes: "Axes") -> None:
        timed = [(n, 1e6 * t.secs) for n, t in enumerate(task.trials, 1) if math.isfinite(t.secs)]
        if timed:
            best = _gains(task)
            axes.set_yscale("log")
            # A line is a single SVG element, while each dot would be a separate one.
            axes.step(*zip(*timed, strict=True), where="mid", color="#9aa5b1", linewidth=0.7)
            axes.step(*zip(*best, strict=True), where="post", color="#b3541e")
            axes.minorticks_off()
            # Set the ticks: within a decade, a logarithmic axis has no labels.
            shown = apart(best[-1][1], max(us for _, us in timed), best[0][1])
            axes.set_yticks(shown, [f"{us:.0f}" if us >= 100.0 else f"{us:.3g}" for us in shown])
        axes.set_xlim(0.5, len(task.trials) + 0.5)
        for trials in descends_after:
            axes.axvline(trials + 0.5, color="#616e7c", linewidth=0.8, linestyle=":")
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.set(xlabel="trial", ylabel="microseconds")

    return picture(draw, f"{task.workload} {task.target}")


def _gains(task: TaskHistory) -> list[tuple[int, float]]:
    """The numbers of trials that improved the best time, and of the last trial, each with the best
    time in microseconds."""
    best = [(n, 1e6 * s) for n, s in enumerate(task.best_so_far, 1) if math.isfinite(s)]
    befores = [math.inf, *(us for _, us in best)]
    gains = [(n, us) for (n, us), before in zip(best, befores, strict=False) if us < before]
    return [*gains, best[-1]]


def apart(*times: float) -> list[float]:
    """Select tick labels for a logarithmic axis that keep the distance ``LEAST_DISTANCE``.

    ``times``: positive times, the most important first; the axis extends from the smallest to the
    largest. A time too close to a more important one is left out. Returns times in ascending order.
    """
    length = math.log(max(times) / min(times)) or 1.0
    shown: list[float] = []
    for time in times:
        if all(abs(math.log(time / other)) >= LEAST_DISTANCE * length for other in shown):
            shown.append(time)
    return sorted(shown)


def roofline_plot(
    points: Sequence[tuple[float, float, str]], peak_gflops: float, gbytes_per_sec: float
) -> str:
    """Plot kernels below the two ceilings of a machine as SVG, with logarithmic axes.

    ``points``: FLOP per byte, GFLOP/s and the title of each kernel, one at least.
    """
    _need_matplotlib()
    ridge = peak_gflops / gbytes_per_sec
    intensities = [ridge, *(intensity for intensity, _, _ in points)]
    least = 10.0 ** math.floor(math.log10(0.9 * min(intensities)))
    # The label of the last power of ten needs some room.
    most = 1.3 * 10.0 ** math.ceil(math.log10(1.1 * max(intensities)))

    def draw(axes: "Axes") -> None:
        ceilings = gbytes_per_sec * least, peak_gflops, peak_gflops
        axes.loglog((least, ridge, most), ceilings, color="#616e7c", linewidth=1.2)
        for number, (intensity, gflops, _) in enumerate(points):
            axes.plot(intensity, gflops, "o", color="#b3541e", markersize=4, gid=f"point{number}")
        axes.minorticks_off()
        axes.set_xlim(least, most)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set(xlabel="FLOP per byte", ylabel="GFLOP/s")

    return picture(draw, "roofline", [title for _, _, title in points])


def latency_plot(
    estimates: Sequence[tuple[float, float]], measured: Sequence[tuple[float, float]]
) -> str:
    """Plot a model's latency over the seconds of its runs as SVG; see ``LatencyCourse``."""
    _need_matplotlib()

    def draw(axes: "Axes") -> None:
        axes.step(*zip(*estimates, strict=True), where="post", color="#b3541e")
        if measured:
            axes.plot(*zip(*measured, strict=True), "o", color="#3d8b4f", markersize=5)
        # From 0: a gain that is within the noise must not look like a cliff.
        axes.set_ylim(0.0, 1.1 * max(ms for _, ms in (*estimates, *measured)))
        axes.set(xlabel="seconds", ylabel="milliseconds")

    return picture(draw, "latency")


def picture(draw: Callable[["Axes"], None], salt: str, titles: Sequence[str] = ()) -> str:
    """Make an ``svg`` element of axes.

    ``draw``: draws on the axes. ``salt``: makes its identifiers differ from those of the page's
    other pictures. ``titles``: the texts shown over the artists of the identifiers ``point0``,
    ``point1`` and so on.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    # Keep text as text: glyph outlines would be most of the file.
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": salt,
        "font.sans-serif": ["DejaVu Sans"],
        "font.size": 9.0,
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with rc_context(settings):
        figure = Figure(figsize=(4.8, 2.1))
        axes = figure.subplots(
            gridspec_kw={"left": 0.19, "right": 0.98, "bottom": 0.21, "top": 0.96}
        )
        draw(axes)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=_WITHOUT)
    svg = text.getvalue()
    for number, title in enumerate(titles):
        group = f'<g id="point{number}">'
        svg = svg.replace(group, f"{group}<title>{escape(title)}</title>")
    return _smaller(svg[svg.index("<svg") :])


def _need_matplotlib() -> None:
    if find_spec("matplotlib") is None:
        raise ReportError("the page needs Matplotlib: pip install 'tvm-droplet-ms[report]'")


def _smaller(svg: str) -> str:
    """The same picture in half the characters, with coordinates rounded to a tenth of a point.

    Its colors become those of the page.
    """
    svg = re.sub(r"\s+", " ", svg)
    for color, name in _COLORS.items():
        svg = svg.replace(color, name)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r' transform="rotate\(-0 [^"]*"', "", svg)
    return re.sub(
        r' (?:d|x|y|transform)="[^"]*"',
        lambda place: re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.1f}", place[0]),
        svg,
    )

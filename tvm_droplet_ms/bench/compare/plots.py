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
"""Convergence plots of a comparison, as images and as one page. Needs matplotlib."""

import base64
import html
import importlib.util
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..score import Floats
from .comparison import Comparison
from .results import CompareError

PAGE = "index.html"

_STYLES = ("-", "--", ":")
_DPI = 120

_HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font-family: sans-serif; margin: 2em; }}
pre {{ overflow-x: auto; }}
img {{ max-width: 100%; }}
</style>
</head>
<body>
<h1>{title}</h1>
"""


def check_matplotlib() -> None:
    """Check that matplotlib is installed.

    Raises
    ------
    CompareError
        If it is not.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise CompareError(
            "matplotlib is not installed, which draws the plots of a comparison: "
            "pip install 'tvm-droplet-ms[bench]'"
        )


def write_plots(comparison: Comparison, report: str, directory: Path) -> list[Path]:
    """Draw the convergence of the strategies, on each space and over all of them.

    Parameters
    ----------
    comparison : Comparison
        The results.
    report : str
        The tables, for the page.
    directory : Path
        Directory of the images and the page.

    Returns
    -------
    files : list[Path]
        The page, then the images: over all spaces, and one for each.

    Raises
    ------
    CompareError
        If matplotlib is not installed.
    """
    check_matplotlib()
    directory.mkdir(parents=True, exist_ok=True)
    images: dict[str, bytes] = {}
    pooled = {
        strategy: np.concatenate(
            [comparison.fractions(strategy, space) for space in comparison.spaces]
        )
        for strategy in comparison.strategies
        if comparison.is_complete(strategy)
    }
    images["all spaces"] = _draw("all spaces", pooled, comparison)
    for space in comparison.spaces:
        curves = {name: comparison.fractions(name, space) for name in comparison.strategies}
        images[space] = _draw(space, {n: c for n, c in curves.items() if len(c)}, comparison)
    files = []
    for name, image in images.items():
        path = directory / f"{name.replace(' ', '-')}.png"
        path.write_bytes(image)
        files.append(path)
    page = directory / PAGE
    page.write_text(make_page("Comparison of search strategies", report, images))
    return [page, *files]


def quartiles(fractions: Floats) -> Floats:
    """The first quartile, the median and the third over the runs: shape (3, trials)."""
    return np.asarray(np.quantile(fractions, [0.25, 0.5, 0.75], axis=0), dtype=np.float64)


def make_page(title: str, report: str, images: Mapping[str, bytes]) -> str:
    """A page in HTML that needs no other file.

    Parameters
    ----------
    title : str
        Its title.
    report : str
        Text that is shown as it is.
    images : Mapping[str, bytes]
        PNG images by their captions.
    """
    parts = [_HEAD.format(title=html.escape(title)), f"<pre>{html.escape(report)}</pre>\n"]
    for caption, image in images.items():
        data = base64.b64encode(image).decode()
        parts.append(f"<h2>{html.escape(caption)}</h2>\n")
        parts.append(
            f'<img alt="convergence on {html.escape(caption, quote=True)}" '
            f'src="data:image/png;base64,{data}">\n'
        )
    return "".join(parts) + "</body>\n</html>\n"


def _draw(title: str, curves: Mapping[str, Floats], comparison: Comparison) -> bytes:
    """A PNG image: the median and the band between the quartiles of each strategy."""
    # Without pyplot, which keeps figures and chooses a backend for the whole process.
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(9, 5.5), layout="constrained")
    axes = figure.add_subplot()
    trials = np.arange(1, comparison.trials + 1)
    for strategy, fractions in curves.items():
        # By its place among all, so that a strategy looks the same in every plot.
        place = comparison.strategies.index(strategy)
        color, style = f"C{place % 10}", _STYLES[place // 10 % len(_STYLES)]
        low, median, high = quartiles(fractions)
        axes.plot(trials, median, color=color, linestyle=style, label=strategy)
        axes.fill_between(trials, low, high, color=color, alpha=0.12, linewidth=0)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlim(1, comparison.trials)
    axes.set_ylim(top=1.005)
    axes.set_title(f"{title}: median and quartiles over the runs")
    axes.set_xlabel("trials")
    axes.set_ylabel("fraction of the optimum")
    axes.grid(alpha=0.3)
    if curves:
        axes.legend(loc="lower right", fontsize="small")
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=_DPI)
    return image.getvalue()

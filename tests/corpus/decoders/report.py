# SPDX-License-Identifier: Apache-2.0
"""The tables of the rows that were measured."""

from collections.abc import Iterable, Mapping
from statistics import median, quantiles
from typing import Any

Row = Mapping[str, Any]


def tables(rows: Iterable[Row]) -> str:
    """The table of decoders, and that of products."""
    kept = list(rows)
    steps = [row for row in kept if "kind" in row]
    products = [row for row in kept if "bits" in row]
    return "\n\n".join(
        "\n".join(lines) for lines in (_of_steps(steps), _of_products(products)) if lines
    )


def _of_steps(rows: list[Row]) -> list[str]:
    if not rows:
        return []
    lines = [
        "| decoder | cache | new tokens | minutes | `tune`, ms | fastest other, ms | speed "
        "| PyTorch | torch.compile | ONNX Runtime | OpenVINO |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        times = {name: 1e3 * median(secs) for name, secs in row["secs"].items()}
        ours = times.pop("tune")
        fastest = min(times, key=lambda name: times[name])
        low, _, high = (1e3 * each for each in quantiles(row["secs"]["tune"], n=4))
        half = ", bfloat16" * (row["precision"] == "bfloat16")
        cells = [
            f"{row['kind']}{half}",
            str(row["length"]),
            str(row["tokens"]),
            f"{row['minutes']:g}",
            f"{ours:.2f} ({low:.2f} to {high:.2f})",
            f"{fastest}, {times[fastest]:.2f}",
            f"**{times[fastest] / ours:.2f}**",
            *(f"{times[name]:.2f}" for name in times),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _of_products(rows: list[Row]) -> list[str]:
    if not rows:
        return []
    lines = [
        "| rows | matrix | bits | `accuracy_level` | `tune`, us | ONNX Runtime, us | speed |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        ours, other = (1e6 * median(row["secs"][name]) for name in ("tune", "ONNX Runtime"))
        low, _, high = (1e6 * each for each in quantiles(row["secs"]["tune"], n=4))
        shown = f"{ours:.0f} ({low:.0f} to {high:.0f})"
        cells = [row["rows"], f"{row['extent']} x {row['extent']}", row["bits"], row["level"]]
        cells += [shown, f"{other:.0f}", f"**{other / ours:.2f}**"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines

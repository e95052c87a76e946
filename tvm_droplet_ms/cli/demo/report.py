# SPDX-License-Identifier: Apache-2.0
"""The demo's table: data in, text out."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ...display.tables import align


@dataclass(frozen=True)
class KernelRow:
    """The results of tuning one kernel.

    The three modules were timed in alternation: position ``i`` of each sequence belongs to the same
    round. ``flop``: floating-point operations of one call. ``descended_secs``: None if the descent
    found nothing better than the best module of the exploration.
    """

    kernel: str
    flop: float
    untuned_secs: Sequence[float]
    explored_secs: Sequence[float]
    descended_secs: Sequence[float] | None
    explore_trials: int
    descend_trials: int

    def gflops(self, secs: Sequence[float]) -> float:
        """The rate in GFLOP/s at the median of the times."""
        return self.flop / median(secs) / 1e9


_HEADER = (
    "kernel",
    "untuned",
    "after exploration",
    "after descent",
    "gain of descent",
    "trials explored",
    "trials descended",
    "of BLAS",
)


def _gain(row: KernelRow) -> str:
    """The speedup by the descent: median and range over the rounds."""
    if row.descended_secs is None:
        return "nothing better"
    ratios = [
        explored / descended
        for explored, descended in zip(row.explored_secs, row.descended_secs, strict=True)
    ]
    return f"{median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f})"


def _cells(row: KernelRow, blas_gflops: float | None) -> tuple[str, ...]:
    descended = row.gflops(row.descended_secs or row.explored_secs)
    return (
        row.kernel,
        f"{row.gflops(row.untuned_secs):.1f}",
        f"{row.gflops(row.explored_secs):.1f}",
        f"{descended:.1f}",
        _gain(row),
        str(row.explore_trials),
        str(row.descend_trials),
        "unknown" if blas_gflops is None else f"{100 * descended / blas_gflops:.0f}%",
    )


def format_table(rows: Sequence[KernelRow], blas_gflops: float | None) -> str:
    """Format a Markdown table with one line per kernel.

    Rates are in GFLOP/s at the median time. The gain of the descent is the median ratio over the
    rounds, with the smallest and the largest ratio. ``blas_gflops``: the rate of the host's BLAS;
    None if it is unknown.
    """
    return align([_HEADER, *(_cells(row, blas_gflops) for row in rows)])

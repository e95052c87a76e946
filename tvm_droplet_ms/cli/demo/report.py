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
"""The demo's table: data in, text out."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ...report import align


@dataclass(frozen=True)
class KernelRow:
    """What a tuning run reached for one kernel.

    The times of the three modules were taken in alternation: position ``i`` of each sequence
    belongs to the same round.

    Parameters
    ----------
    kernel : str
        The kernel's name.
    flop : float
        The floating point operations of one call.
    untuned_secs : Sequence[float]
        The times of the unscheduled module in seconds.
    explored_secs : Sequence[float]
        The times of the best module when the descent began, in seconds.
    descended_secs : Sequence[float] | None
        The times of the best module at the end, in seconds; None if that is the same module.
    explore_trials : int
        The trials spent exploring.
    descend_trials : int
        The trials spent descending.
    """

    kernel: str
    flop: float
    untuned_secs: Sequence[float]
    explored_secs: Sequence[float]
    descended_secs: Sequence[float] | None
    explore_trials: int
    descend_trials: int

    def gflops(self, secs: Sequence[float]) -> float:
        """The rate in GFLOP/s at the median of some times."""
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
    """The speedup of the descent: the median over the rounds, and its range."""
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
    """Format a table in Markdown, one line for each kernel.

    Rates are in GFLOP/s at the median time. The gain of the descent is the median of the ratios of
    the rounds, with the smallest and the largest; the share of BLAS is that of the last rate.

    Parameters
    ----------
    rows : Sequence[KernelRow]
        The kernels, in the order of the lines.
    blas_gflops : float | None
        The rate of the host's BLAS in GFLOP/s; None if it is not known.

    Returns
    -------
    table : str
        Lines of equal width, without a newline at the end.
    """
    return align([_HEADER, *(_cells(row, blas_gflops) for row in rows)])

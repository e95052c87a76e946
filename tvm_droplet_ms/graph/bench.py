# SPDX-License-Identifier: Apache-2.0
"""The protocols of what times kernels and graphs for a search."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tvm.ir import IRModule

from ..session.stop import StopRequest
from ..tuning.check.output_check import OutputCheck
from .pricing.kernels import Kernel


class Bench(Protocol):
    """Times kernels and whole graphs; ``pricing.workbench.Workbench`` is one."""

    @property
    def trials(self) -> int:
        """The schedules that were measured."""

    @property
    def secs_of(self) -> Mapping[str, float]:
        """The seconds spent, by part."""

    def time(
        self, kernels: Sequence[Kernel], stop: StopRequest, trials: int
    ) -> Mapping[Kernel, float | None]:
        """Time kernels alone; None for one that cannot be timed."""

    def graphs(self, mods: Sequence[IRModule], stop: StopRequest) -> Sequence[Any]:
        """The kernels of whole graphs."""

    def tune(self, graph: Any, trials: int, stop: StopRequest, left_out: set[int]) -> bool:
        """Give the kernels of a graph so many trials; whether there was time for all."""

    def compile(self, graph: Any, check: OutputCheck) -> Any:
        """Compile a graph with the best schedules."""

    def time_graphs(
        self, graphs: Mapping[str, Any], inputs: Sequence[np.ndarray]
    ) -> dict[str, list[float]]:
        """Time compiled graphs in turns: the seconds of each round by name."""

    def kernel_secs(self, graph: Any) -> float:
        """The sum of the best times of a graph's kernels, each alone."""

    def close(self) -> None:
        """End what was started."""

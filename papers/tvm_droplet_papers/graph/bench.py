# SPDX-License-Identifier: Apache-2.0
"""The protocol for timing kernels and graphs during a search."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tvm.ir import IRModule
from tvm_droplet_ms.session.stop import StopRequest
from tvm_droplet_ms.tuning.check.output_check import OutputCheck

from .pricing.kernels import Kernel


class Bench(Protocol):
    """Times kernels and whole graphs; ``pricing.workbench.Workbench`` implements it."""

    @property
    def trials(self) -> int:
        """The number of measured schedules."""

    @property
    def secs_of(self) -> Mapping[str, float]:
        """The seconds spent in each part of the run."""

    def time(
        self, kernels: Sequence[Kernel], stop: StopRequest, trials: int
    ) -> Mapping[Kernel, float | None]:
        """Time each kernel alone; None for a kernel that cannot be timed."""

    def graphs(self, mods: Sequence[IRModule], stop: StopRequest) -> Sequence[Any]:
        """Prepare whole graphs: list their kernels and give each one a first schedule."""

    def tune(self, graph: Any, trials: int, stop: StopRequest, left_out: set[int]) -> bool:
        """Tune each kernel of a graph up to ``trials``. Return whether time sufficed for all."""

    def compile(self, graph: Any, check: OutputCheck) -> Any:
        """Compile a graph with the best schedules."""

    def time_graphs(
        self, graphs: Mapping[str, Any], inputs: Sequence[np.ndarray]
    ) -> dict[str, list[float]]:
        """Time compiled graphs in turns. Return the seconds of each round, by graph name."""

    def kernel_secs(self, graph: Any) -> float:
        """The sum of the best times of a graph's kernels, each timed alone."""

    def close(self) -> None:
        """Stop all worker processes."""

# SPDX-License-Identifier: Apache-2.0
"""The interface of an explorer: its configuration, and the exploration of one run."""

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tvm.s_tir import Schedule
from tvm.s_tir.meta_schedule import TuneContext
from tvm.s_tir.meta_schedule.cost_model import CostModel
from tvm.s_tir.meta_schedule.runner import RunnerResult

from ..candidates import ScreenedReplayer, TaskHistory
from ..design_spaces import EncodedSpaces
from ..drafting import TaskDraft
from ..prior import CostModelPrior
from ..published import search as published
from ..published.candidates import Candidate, Measured
from ..published.decisions import SpacePoint


@dataclass(frozen=True)
class SearchContext:
    """The parts of a run that an explorer and a descent work with.

    - ``schedules``: the design spaces of the task, as TVM gives them.
    - ``generator``: makes all random choices.
    - ``cost_model``: the cost model that TVM trains beside the search; None without one.
    - ``seed``: the seed of the task, for the explorer's own models.
    - ``draft``: scores points before they are replayed; None without a draft.
    """

    replayer: ScreenedReplayer
    history: TaskHistory
    schedules: Sequence[Schedule]
    spaces: EncodedSpaces
    generator: random.Random
    prior: CostModelPrior | None
    cost_model: CostModel | None
    seed: int
    draft: TaskDraft | None = None

    def best(self) -> tuple[Measured, SpacePoint] | None:
        """The fastest schedule that is a point of the design spaces; see ``EncodedSpaces``."""
        return self.spaces.best(self.history)


class ExplorerRun(published.Exploration, Protocol):
    """The exploration of one run: proposes candidates that were never measured.

    By default, it prepares and releases nothing, and ignores results.
    """

    def enter(self, batch_size: int) -> None:
        """Begin to explore in batches of at most ``batch_size`` candidates."""
        return

    def leave(self) -> None:
        """Release the resources of the exploration; a second call does nothing."""
        return

    def tell(self, candidates: Sequence[Candidate], results: Sequence[RunnerResult]) -> None:
        """Take the results of a batch from ``ask``."""
        return

    def waiting(self) -> int:
        """Number of candidates that a resumed task measures before it descends; 0 by default."""
        return 0


class Explorer(ABC):
    """The configuration of an explorer: the ``explorer`` argument of ``DropletStrategy``.

    It holds no state of a run; ``begin`` creates that state.
    """

    def initialize_with_tune_context(self, context: TuneContext) -> None:
        """Prepare for the task of a context; see ``SearchStrategy``. Called more than once."""

    @abstractmethod
    def begin(self, search: SearchContext) -> ExplorerRun:
        """Make the exploration of a run."""

    @abstractmethod
    def clone(self) -> "Explorer":
        """An explorer of the same configuration, without state."""

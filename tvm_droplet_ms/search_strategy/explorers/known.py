# SPDX-License-Identifier: Apache-2.0
"""Explores known schedules of other kernels first."""

from ..known.known_schedules import KnownLike, check_known, find_schedules
from ..known.tuned_task import nearest_points
from ..published.decisions import SpacePoint
from .base import Explorer, SearchContext
from .seeded import SeededExplorer

NEAREST = 3
"""Number of known schedules that a task begins with. With the schedules of the package, eight
layers are 1.08 times as fast after 8 trials (1.02 to 1.16), 1.05 after 16 (1.02 to 1.10) and 1.03
after 32 (1.01 to 1.05; two seeds, 2026-11-26, ``docs/data/live_known.csv``). Two more schedules
with a library's register tiles, the first of five by the prior, make a search 0.95, 0.92, 0.94 and
0.92 times as fast after 8 to 64 trials (standard error 0.04; records of ten layers, two seeds,
2026-11-27)."""


class KnownExplorer(SeededExplorer):
    """Explores the best schedules of the nearest known kernels first, refitted to the task.

    Near kernels have the same kinds of decisions over loops of about the same extents.

    Parameters
    ----------
    known : str | os.PathLike[str] | None
        "auto" for the schedules that come with the package, None for no schedules, or the path of
        a file that ``python -m tvm_droplet_ms.tuning.experience.shipped_schedules`` wrote.
    explorer : Explorer | None
        The explorer that fills the batch and continues. None for ``RandomExplorer()``.

    Raises
    ------
    ValueError
        If the file does not exist, or holds no known schedules.
    """

    def __init__(self, known: KnownLike = "auto", explorer: Explorer | None = None) -> None:
        check_known(known)
        self.known = known
        super().__init__(self._nearest, explorer)

    def _nearest(self, search: SearchContext) -> list[SpacePoint]:
        """The nearest known schedules, refitted; none for a task with earlier measurements."""
        if len(search.history) > 0:
            return []
        known = find_schedules(self.known, search.history.target)
        return nearest_points(known, search.spaces, NEAREST)

    def clone(self) -> "KnownExplorer":
        """An explorer of the same configuration."""
        return KnownExplorer(self.known, self.explorer.clone())

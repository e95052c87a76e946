# SPDX-License-Identifier: Apache-2.0
"""Knowledge of kernels from before a model's first measurement."""

import os
from dataclasses import dataclass

from ...search_strategy.known.known_schedules import KnownLike, find_schedules
from ...search_strategy.prior import check_prior


@dataclass(frozen=True)
class Experience:
    """The lessons of earlier measurements, of other models.

    ``prior``: the pretrained cost model: "auto" for the one that the package ships, the path of a
    model file, or None. ``known``: the best schedules of other models: "auto" for those that the
    package ships, the path of a file of ``shipped_schedules``, or None. Raises ``ValueError`` if a
    file is missing, or holds something else.
    """

    prior: str | os.PathLike[str] | None = "auto"
    known: KnownLike = "auto"

    def __post_init__(self) -> None:
        check_prior(self.prior)
        find_schedules(self.known)

# SPDX-License-Identifier: Apache-2.0
"""The interface of a descent."""

from typing import Protocol

from ..published import search as published


class Descent(published.Descent, Protocol):
    """Proposes batches from the best schedule that was measured."""

    def batch_size(self) -> int:
        """The most candidates of the next batch."""

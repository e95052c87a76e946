# SPDX-License-Identifier: Apache-2.0
"""The features that the networks read; the functions that compute them describe each number."""

from collections.abc import Sequence

import numpy as np

from tvm_droplet_ms.cost_model.features.program_features import Extractor
from tvm_droplet_ms.cost_model.features.store_features import (
    PER_STORE,
    in_buffer_order,
    largest_stores,
)
from tvm_droplet_ms.cost_model.nests import LoopNest

from .dataflow import (
    STATEMENT_WIDTH,
    STATEMENTS,
    TOKEN_WIDTH,
    TOKENS,
    data_movements,
    statements,
)
from .loop_tree import MAX_NODES, TREE_FEATURES, WIDTH, loop_tree

_MOVEMENTS = f"pacm 1: {TOKENS} movements of {TOKEN_WIDTH}"


class LoopTrees(Extractor):
    """The loop tree; see ``loop_tree.loop_tree``."""

    schema = f"tree 1: {MAX_NODES} nodes, {WIDTH} of each"
    width = TREE_FEATURES

    def parts(self, nests: Sequence[LoopNest], stores: np.ndarray) -> list[np.ndarray]:
        """The features of one program, in their order."""
        return [loop_tree(nests)]


class DataFlow(Extractor):
    """The data movements, then the statements; see ``dataflow``."""

    schema = f"{_MOVEMENTS}, {STATEMENTS} statements of {STATEMENT_WIDTH}"
    width = TOKENS * TOKEN_WIDTH + STATEMENTS * STATEMENT_WIDTH

    def parts(self, nests: Sequence[LoopNest], stores: np.ndarray) -> list[np.ndarray]:
        """The features of one program, in their order."""
        return [data_movements(nests), statements(nests)]


class DataFlowStores(Extractor):
    """The data movements, then a 1 and the features of each store.

    Only the ``STATEMENTS`` stores with the most operations are included.
    """

    schema = f"{_MOVEMENTS}, {STATEMENTS} stores of {1 + PER_STORE}"
    width = TOKENS * TOKEN_WIDTH + STATEMENTS * (1 + PER_STORE)
    reads_stores = True

    def parts(self, nests: Sequence[LoopNest], stores: np.ndarray) -> list[np.ndarray]:
        """The features of one program, in their order."""
        kept = largest_stores(in_buffer_order(stores), STATEMENTS)
        flagged = np.zeros((STATEMENTS, 1 + PER_STORE), dtype=np.float32)
        flagged[: len(kept), 0], flagged[: len(kept), 1:] = 1.0, kept
        return [data_movements(nests), flagged]

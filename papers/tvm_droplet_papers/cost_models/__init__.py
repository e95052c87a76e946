# SPDX-License-Identifier: Apache-2.0
"""Networks as cost models: AutoTVM's TreeGRU, and Pruner's PaCM with its momentum adaptation."""

from collections.abc import Mapping

from tvm_droplet_ms.cost_model.kinds import NetworkKind
from tvm_droplet_ms.cost_model.model_file import ModelKind

from .extractors import DataFlow, DataFlowStores, LoopTrees
from .momentum import adapted_network
from .pattern_aware import PatternAware
from .tree_gru import TreeGRU

NETWORK_KINDS: Mapping[ModelKind, NetworkKind] = {
    "treegru": NetworkKind(LoopTrees, TreeGRU),
    "pacm": NetworkKind(DataFlow, PatternAware, adapted_network),
    "pacm-stores": NetworkKind(DataFlowStores, PatternAware, adapted_network),
}
"""The kinds of networks; ``tvm_droplet_ms.cost_model.kinds`` looks them up here."""

__all__ = [
    "NETWORK_KINDS",
    "DataFlow",
    "DataFlowStores",
    "LoopTrees",
    "PatternAware",
    "TreeGRU",
]
